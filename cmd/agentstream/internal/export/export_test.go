package export

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/cmd/agentstream/internal/archivetest"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/persister"
	"agentstream/persister/export"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// keysOf returns the tenant's runs in the order of an export; all tenants' for "".
func keysOf(f archivetest.Filled, tenant string) []schema.RunKey {
	keys := slices.SortedFunc(maps.Keys(f.Runs),
		func(a, b schema.RunKey) int { return strings.Compare(a.String(), b.String()) })
	return slices.DeleteFunc(keys, func(k schema.RunKey) bool { return tenant != "" && k.Tenant != tenant })
}

// exportOf runs the command line.
func exportOf(t *testing.T, f archivetest.Filled, change func(*ExportCmd),
	args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return exportArgs(t, t.Context(), change, slices.Concat(f.Args, args)...)
}

func exportArgs(t *testing.T, ctx context.Context, change func(*ExportCmd),
	args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var c ExportCmd
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		return "", "", err
	}
	var out, errs bytes.Buffer
	c.Streams = cli.Streams{Out: &out, Err: &errs}
	if change != nil {
		change(&c)
	}
	kctx.Bind(slog.New(slog.DiscardHandler))
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run()
	return out.String(), errs.String(), err
}

// Every line of an export is the line that the run has, in both stores and in every form.
func TestExportJSONLIsTheReplay(t *testing.T) {
	for name, f := range archivetest.FillStores(t) {
		t.Run(name, func(t *testing.T) {
			all, hostile := "", schema.RunKey{Tenant: "acme", Run: "run_hostile"}
			for _, k := range keysOf(f, "acme") {
				all += clitest.Join(f.Runs[k])
			}
			if f.Runs[hostile] == nil || !strings.Contains(all, `\u0000`) || !strings.Contains(all, `1e400`) {
				t.Fatal("the scenarios are not hostile")
			}
			one, _, err := exportOf(t, f, nil, "--tenant", "acme", "-o", "-", hostile.Run)
			if err != nil || one != clitest.Join(f.Runs[hostile]) {
				t.Errorf("one run on standard output: %v\n%s", err, one)
			}
			for _, ending := range []string{".jsonl", ".jsonl.gz", ".jsonl.zst"} {
				file := filepath.Join(t.TempDir(), "all"+ending)
				if _, _, err := exportOf(t, f, nil, "--tenant", "acme", "-o", file); err != nil {
					t.Fatal(err)
				}
				if unzipped(t, file) != all {
					t.Errorf("%s is not the runs' lines behind one another", ending)
				}
			}
			for _, compression := range []string{"none", "gz", "zst"} {
				dir := filepath.Join(t.TempDir(), "out")
				_, stderr, err := exportOf(t, f, nil, "--all-tenants", "-o", dir, "--compress", compression)
				if err != nil || !strings.Contains(stderr, "exported "+strconv.Itoa(len(f.Runs))+" runs") {
					t.Fatalf("%v %s", err, stderr)
				}
				ending := strings.TrimSuffix(".jsonl."+compression, ".none")
				for _, k := range keysOf(f, "") {
					if unzipped(t, filepath.Join(dir, k.Tenant, k.Run+ending)) != clitest.Join(f.Runs[k]) {
						t.Errorf("%s: the file is not the run", k)
					}
				}
			}
		})
	}
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	switch filepath.Ext(path) {
	case ".gz":
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	case ".zst":
		z, err := zstd.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		r = z
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExportChoosesRuns(t *testing.T) {
	f := archivetest.SQLiteStore(t)
	for _, name := range []string{"plain", "failed", "children"} {
		for _, s := range schematest.All() {
			if s.Name == name {
				f.Add(t, schema.RunKey{Tenant: "acme", Run: "run_" + name}, s)
			}
		}
	}
	if len(f.Runs) < 2 {
		t.Fatal("scenarios are missing")
	}
	sources, err := f.Store.(export.Source).Runs(t.Context(), "acme", schema.RunsQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range sources {
		out, _, err := exportOf(t, f, nil, "--tenant", "acme", "-o", "-", "--state", string(r.State))
		if err != nil || !strings.Contains(out, `"run_id":"`+r.ID+`"`) {
			t.Errorf("--state %s: %v", r.State, err)
		}
		for _, other := range sources {
			if other.State != r.State && strings.Contains(out, `"run_id":"`+other.ID+`"`) {
				t.Errorf("--state %s gave %s, which is %s", r.State, other.ID, other.State)
			}
		}
	}
	began := schematest.Epoch.Format("2006-01-02T15:04:05Z")
	for _, c := range []struct {
		args []string
		some bool
	}{
		{[]string{"--since", began}, true}, {[]string{"--until", began}, false},
		{[]string{"--since", "2100-01-01"}, false}, {[]string{"--until", "2100-01-01"}, true},
	} {
		out, _, err := exportOf(t, f, nil, append([]string{"--tenant", "acme", "-o", "-"}, c.args...)...)
		if err != nil || (out != "") != c.some {
			t.Errorf("%v: %v, %d bytes", c.args, err, len(out))
		}
	}
}

func TestExportSaysWhatIsWrong(t *testing.T) {
	f := archivetest.SQLiteStore(t)
	f.Add(t, schema.RunKey{Tenant: "default", Run: "r1"}, schematest.ByName("plain"))
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "some.txt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"-o - nobody", "run default/nobody: there is no such run"},
		{"-o - nobody --format parquet --table runs", "no such run"},
		{"-o - --tenant a.b", "--tenant"}, {"-o - a.b", "RUN"}, {"-o - --state well", `not "well"`},
		{"-o - --since yesterday", "--since"}, {"-o - --until yesterday", "--until"}, {"-o - r1 --since 1h", "not both"},
		{"-o " + file, "--output"}, {"-o a.parquet --format jsonl", "--format jsonl"},
		{"-o - --table runs", "--table runs"}, {"-o - --format parquet --compress gz", "--compress"},
		{"-o - --resume", "--resume"}, {"-o a.jsonl --all-tenants", "--all-tenants"},
		{"-o " + dir + " --rows-per-file 0", "--rows-per-file"},
	} {
		if _, _, err := exportOf(t, f, nil, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"-o -", "--postgres"}, {"-o - --data " + dir, "--data"},
		{"-o - --postgres postgres://127.0.0.1:1/nothing", "postgres"},
	} {
		if _, _, err := exportArgs(t, t.Context(), nil, strings.Fields(c.args)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("a refused export left %v", left)
	}
}

// breaking is a source that fails after so many packs.
type breaking struct {
	export.Source
	packs int
	fail  func() error
}

func (b *breaking) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range b.Source.Packs(ctx, key, after, through) {
			if b.packs--; b.packs == 0 {
				err = b.fail()
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// An export that is stopped at any pack leaves whole files alone, and one that is resumed ends as if
// nobody had stopped it: no row is missing, none is there twice.
func TestExportResumes(t *testing.T) {
	f := archivetest.SQLiteStore(t)
	for i, s := range schematest.All() {
		if i < 8 || s.Name == "hostile" {
			f.Add(t, schema.RunKey{Tenant: "acme", Run: "run_" + strings.ReplaceAll(s.Name, " ", "-")}, s)
		}
	}
	f.Add(t, schema.RunKey{Tenant: "acme", Run: "run_generated"}, schematest.Generate(1500, 3))
	for _, form := range [][]string{
		{"--format", "jsonl"}, {"--format", "jsonl", "--compress", "gz"},
		{"--format", "parquet", "--rows-per-file", "100"},
		{"--format", "parquet", "--table", "messages", "--rows-per-file", "3"},
	} {
		t.Run(strings.Join(form, " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			args := append([]string{"--tenant", "acme", "-o", dir}, form...)
			for stopped, packs := 0, 1; ; packs += 1 + packs/3 {
				ctx, cancel := context.WithCancel(t.Context())
				stop := func(c *ExportCmd) {
					c.archive = func(s export.Source) export.Source {
						return &breaking{s, packs, func() error { cancel(); return nil }}
					}
				}
				_, _, err := exportArgs(t, ctx, stop, slices.Concat(f.Args, args)...)
				cancel()
				noParts(t, dir)
				if err == nil {
					if stopped < 3 {
						t.Fatalf("it was stopped %d times only", stopped)
					}
					break
				}
				stopped++
				if !strings.Contains(err.Error(), "interrupted") {
					t.Fatal(err)
				}
				if stopped == 1 {
					if _, _, err := exportOf(t, f, nil, args...); err == nil || !strings.Contains(err.Error(), "--resume") {
						t.Fatalf("a second export into the folder: %v", err)
					}
					args = append(args, "--resume")
				}
			}
			checkFolder(t, f, dir, form)
			_, stderr, err := exportOf(t, f, nil, args...)
			if err != nil || !strings.Contains(stderr, "exported 0 runs") ||
				!strings.Contains(stderr, strconv.Itoa(len(f.Runs))+" runs were there already") {
				t.Fatalf("nothing was left to do: %v %s", err, stderr)
			}
			checkFolder(t, f, dir, form)
		})
	}
}

func noParts(t *testing.T, dir string) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
		if strings.HasSuffix(path, ".part") {
			t.Fatalf("%s was left", path)
		}
		return nil
	})
}

// checkFolder holds a folder to the runs.
func checkFolder(t *testing.T, f archivetest.Filled, dir string, form []string) {
	t.Helper()
	switch {
	case slices.Contains(form, "messages"):
		checkMessages(t, f, readTable[export.MessageRow](t, dir))
	case slices.Contains(form, "parquet"):
		checkEvents(t, f, readTable[export.EventRow](t, dir))
	default:
		ending := ".jsonl"
		if slices.Contains(form, "gz") {
			ending += ".gz"
		}
		for _, k := range keysOf(f, "acme") {
			if unzipped(t, filepath.Join(dir, k.Tenant, k.Run+ending)) != clitest.Join(f.Runs[k]) {
				t.Errorf("%s: the file is not the run", k)
			}
		}
	}
}

// What has come to a run since is added to the table, and makes the file of the run anew.
func TestExportTakesUpWhatCameSince(t *testing.T) {
	f := archivetest.SQLiteStore(t)
	key := schema.RunKey{Tenant: "acme", Run: "run_long"}
	packs := schematest.Packs(key, schematest.ByName("long"), 50)
	put := func(packs []schema.Pack) {
		chunks, err := persister.Chunks(packs...)
		if err == nil {
			_, err = f.Store.Append(t.Context(), chunks)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	table, lines := filepath.Join(t.TempDir(), "table"), filepath.Join(t.TempDir(), "lines")
	for i, n := range []int{len(packs) / 3, len(packs) / 2, len(packs)} {
		put(packs[:n])
		f.Runs[key] = schematest.Lines(packs[:n])
		for _, args := range [][]string{{"-o", table, "--format", "parquet"}, {"-o", lines}} {
			if i > 0 {
				args = append(args, "--resume")
			}
			if _, _, err := exportOf(t, f, nil, append(args, "--tenant", "acme")...); err != nil {
				t.Fatal(err)
			}
		}
		checkEvents(t, f, readTable[export.EventRow](t, table))
		if unzipped(t, filepath.Join(lines, "acme", "run_long.jsonl")) != clitest.Join(f.Runs[key]) {
			t.Error("the file is not the run")
		}
	}
	if files, _ := filepath.Glob(filepath.Join(table, "*.parquet")); len(files) != 3 {
		t.Errorf("three exports made %v", files)
	}
}

func TestExportKeepsToItsManifest(t *testing.T) {
	f := archivetest.SQLiteStore(t)
	f.Add(t, schema.RunKey{Tenant: "default", Run: "r1"}, schematest.ByName("plain"))
	f.Add(t, schema.RunKey{Tenant: "default", Run: "r2"}, schematest.ByName("plain"))
	fresh := func() (dir, manifest string) {
		dir = t.TempDir()
		if _, _, err := exportOf(t, f, nil, "-o", dir); err != nil {
			t.Fatal(err)
		}
		return dir, filepath.Join(dir, export.ManifestName)
	}
	dir, manifest := fresh()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	// A line that was cut off by a crash is written again, with its file.
	for cut := 1; cut < len(text); cut += 9 {
		if err := os.WriteFile(manifest, text[:len(text)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := exportOf(t, f, nil, "-o", dir, "--resume"); err != nil {
			t.Fatalf("cut by %d: %v", cut, err)
		}
		_, stderr, err := exportOf(t, f, nil, "-o", dir, "--resume")
		if err != nil || !strings.Contains(stderr, "2 runs were there already") {
			t.Fatalf("cut by %d, then resumed twice: %v %s", cut, err, stderr)
		}
	}
	// The file of a run that is not as it was noted is written again.
	for _, harm := range []func(path string) error{os.Remove, func(path string) error { return os.Truncate(path, 9) }} {
		dir, _ := fresh()
		path := filepath.Join(dir, "default", "r2.jsonl")
		if err := harm(path); err != nil {
			t.Fatal(err)
		}
		_, stderr, err := exportOf(t, f, nil, "-o", dir, "--resume")
		if err != nil || !strings.Contains(stderr, "exported 1 runs") ||
			unzipped(t, path) != clitest.Join(f.Runs[schema.RunKey{Tenant: "default", Run: "r2"}]) {
			t.Errorf("a file was harmed: %v %s", err, stderr)
		}
	}
	// A table that lacks a file is refused.
	table := t.TempDir()
	if _, _, err := exportOf(t, f, nil, "-o", table, "--format", "parquet"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(table, "events-000001.parquet")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := exportOf(t, f, nil, "-o", table, "--format", "parquet", "--resume"); !errors.Is(err,
		export.ErrManifest) {
		t.Errorf("a table lacks a file: %v", err)
	}
	dir, manifest = fresh()
	if _, _, err := exportOf(t, f, nil, "-o", dir, "--resume", "--format", "parquet"); !errors.Is(err,
		export.ErrManifest) {
		t.Errorf("another format: %v", err)
	}
	if err := os.WriteFile(manifest, []byte("what is this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := exportOf(t, f, nil, "-o", dir, "--resume"); !errors.Is(err, export.ErrManifest) {
		t.Errorf("another manifest: %v", err)
	}
}

// A store that lacks events at a run's end is not silently believed.
func TestExportTellsOfMissingEvents(t *testing.T) {
	f := archivetest.SQLiteStore(t)
	f.Add(t, schema.RunKey{Tenant: "default", Run: "r1"}, schematest.ByName("long"))
	short := func(c *ExportCmd) {
		c.archive = func(s export.Source) export.Source { return &cut{s} }
	}
	_, stderr, err := exportOf(t, f, short, "-o", filepath.Join(t.TempDir(), "r1.jsonl"))
	if !errors.Is(err, errExportShort) || !strings.Contains(stderr, "run default/r1: the archive has no events behind") {
		t.Errorf("%v, %s", err, stderr)
	}
}

// cut ends every walk after one pack.
type cut struct{ export.Source }

func (c *cut) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range c.Source.Packs(ctx, key, after, through) {
			yield(p, err)
			return
		}
	}
}
