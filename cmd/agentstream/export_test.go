package main

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

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/export"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/sqlite"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// filled is a store with runs in it.
type filled struct {
	args  []string // name it to the command
	store interface {
		persistertest.Store
		persistertest.Tables
	}
	runs map[schema.RunKey][]string // lines
}

// fillStores returns both stores, with every scenario as a run of two tenants.
func fillStores(t *testing.T) map[string]filled {
	t.Helper()
	stores := map[string]filled{"sqlite": sqliteStore(t)}
	t.Run("postgres", func(t2 *testing.T) { // where there is none, that alone is skipped
		testkit.StartPostgres(t2)
		stores["postgres"] = postgresStore(t)
	})
	scenarios := append(schematest.All(), schematest.Generate(3000, 7))
	for _, f := range stores {
		for i, s := range scenarios {
			s.Name = "run_" + strings.ReplaceAll(s.Name, " ", "-")
			for _, tenant := range []string{"acme", "globex"}[:1+i%2] {
				f.add(t, schema.RunKey{Tenant: tenant, Run: s.Name}, s)
			}
		}
	}
	return stores
}

func sqliteStore(t *testing.T) filled {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return filled{[]string{"--data", dir}, s, map[schema.RunKey][]string{}}
}

func postgresStore(t *testing.T) filled {
	t.Helper()
	dsn := testkit.StartPostgres(t).Database(t)
	if _, err := postgres.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return filled{[]string{"--postgres", dsn}, s, map[schema.RunKey][]string{}}
}

func (f filled) add(t *testing.T, key schema.RunKey, s schematest.Scenario) {
	t.Helper()
	packs := schematest.Packs(key, s, 100)
	chunks, err := persister.Chunks(packs...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Append(t.Context(), chunks); err != nil {
		t.Fatal(err)
	}
	f.runs[key] = schematest.Lines(packs)
}

// keys returns the tenant's runs in the order of an export; all tenants' for "".
func (f filled) keys(tenant string) []schema.RunKey {
	keys := slices.SortedFunc(maps.Keys(f.runs), func(a, b schema.RunKey) int { return strings.Compare(a.String(), b.String()) })
	return slices.DeleteFunc(keys, func(k schema.RunKey) bool { return tenant != "" && k.Tenant != tenant })
}

// exportCmd runs the command line.
func (f filled) export(t *testing.T, change func(*ExportCmd), args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return exportArgs(t, t.Context(), change, slices.Concat([]string{"export"}, f.args, args)...)
}

func exportArgs(t *testing.T, ctx context.Context, change func(*ExportCmd), args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var cli CLI
	parser, err := newParser(&cli, args, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		return "", "", err
	}
	var out, errs bytes.Buffer
	cli.Export.Streams = Streams{Out: &out, Err: &errs}
	if change != nil {
		change(&cli.Export)
	}
	kctx.Bind(slog.New(slog.DiscardHandler))
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run()
	return out.String(), errs.String(), err
}

// Every line of an export is the line that the run has, in both stores and in every form.
func TestExportJSONLIsTheReplay(t *testing.T) {
	for name, f := range fillStores(t) {
		t.Run(name, func(t *testing.T) {
			all, hostile := "", schema.RunKey{Tenant: "acme", Run: "run_hostile"}
			for _, k := range f.keys("acme") {
				all += joined(f.runs[k])
			}
			if f.runs[hostile] == nil || !strings.Contains(all, `\u0000`) || !strings.Contains(all, `1e400`) {
				t.Fatal("the scenarios are not hostile")
			}
			one, _, err := f.export(t, nil, "--tenant", "acme", "-o", "-", hostile.Run)
			if err != nil || one != joined(f.runs[hostile]) {
				t.Errorf("one run on standard output: %v\n%s", err, one)
			}
			for _, ending := range []string{".jsonl", ".jsonl.gz", ".jsonl.zst"} {
				file := filepath.Join(t.TempDir(), "all"+ending)
				if _, _, err := f.export(t, nil, "--tenant", "acme", "-o", file); err != nil {
					t.Fatal(err)
				}
				if unzipped(t, file) != all {
					t.Errorf("%s is not the runs' lines behind one another", ending)
				}
			}
			for _, compression := range []string{"none", "gz", "zst"} {
				dir := filepath.Join(t.TempDir(), "out")
				_, stderr, err := f.export(t, nil, "--all-tenants", "-o", dir, "--compress", compression)
				if err != nil || !strings.Contains(stderr, "exported "+strconv.Itoa(len(f.runs))+" runs") {
					t.Fatalf("%v %s", err, stderr)
				}
				ending := strings.TrimSuffix(".jsonl."+compression, ".none")
				for _, k := range f.keys("") {
					if unzipped(t, filepath.Join(dir, k.Tenant, k.Run+ending)) != joined(f.runs[k]) {
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
	f := sqliteStore(t)
	for _, name := range []string{"plain", "failed", "children"} {
		for _, s := range schematest.All() {
			if s.Name == name {
				f.add(t, schema.RunKey{Tenant: "acme", Run: "run_" + name}, s)
			}
		}
	}
	if len(f.runs) < 2 {
		t.Fatal("scenarios are missing")
	}
	sources, err := f.store.(export.Source).Runs(t.Context(), "acme", schema.RunsQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range sources {
		out, _, err := f.export(t, nil, "--tenant", "acme", "-o", "-", "--state", string(r.State))
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
		out, _, err := f.export(t, nil, append([]string{"--tenant", "acme", "-o", "-"}, c.args...)...)
		if err != nil || (out != "") != c.some {
			t.Errorf("%v: %v, %d bytes", c.args, err, len(out))
		}
	}
}

func TestExportSaysWhatIsWrong(t *testing.T) {
	f := sqliteStore(t)
	f.add(t, schema.RunKey{Tenant: "default", Run: "r1"}, schematest.Named("plain"))
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "some.txt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"-o - nobody", "run default/nobody: there is no such run"},
		{"-o - nobody --format parquet --table runs", "no such run"},
		{"-o - --tenant a.b", "--tenant"}, {"-o - a.b", "RUN"}, {"-o - --state well", `--state "well"`},
		{"-o - --since yesterday", "--since"}, {"-o - --until yesterday", "--until"}, {"-o - r1 --since 1h", "not both"},
		{"-o " + file, "--output"}, {"-o a.parquet --format jsonl", "--format jsonl"},
		{"-o - --table runs", "--table runs"}, {"-o - --format parquet --compress gz", "--compress"},
		{"-o - --resume", "--resume"}, {"-o a.jsonl --all-tenants", "--all-tenants"}, {"-o " + dir + " --rows-per-file 0", "--rows-per-file"},
	} {
		if _, _, err := f.export(t, nil, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"export -o -", "--postgres"}, {"export -o - --data " + dir, "--data"},
		{"export -o - --postgres postgres://127.0.0.1:1/nothing", "postgres"},
	} {
		if _, _, err := exportArgs(t, t.Context(), nil, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
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

func (b *breaking) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
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
	f := sqliteStore(t)
	for i, s := range schematest.All() {
		if i < 8 || s.Name == "hostile" {
			f.add(t, schema.RunKey{Tenant: "acme", Run: "run_" + strings.ReplaceAll(s.Name, " ", "-")}, s)
		}
	}
	f.add(t, schema.RunKey{Tenant: "acme", Run: "run_generated"}, schematest.Generate(1500, 3))
	for _, form := range [][]string{
		{"--format", "jsonl"}, {"--format", "jsonl", "--compress", "gz"},
		{"--format", "parquet", "--rows-per-file", "100"}, {"--format", "parquet", "--table", "messages", "--rows-per-file", "3"},
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
				_, _, err := exportArgs(t, ctx, stop, slices.Concat([]string{"export"}, f.args, args)...)
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
					if _, _, err := f.export(t, nil, args...); err == nil || !strings.Contains(err.Error(), "--resume") {
						t.Fatalf("a second export into the folder: %v", err)
					}
					args = append(args, "--resume")
				}
			}
			checkFolder(t, f, dir, form)
			_, stderr, err := f.export(t, nil, args...)
			if err != nil || !strings.Contains(stderr, "exported 0 runs") || !strings.Contains(stderr, strconv.Itoa(len(f.runs))+" runs were there already") {
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
func checkFolder(t *testing.T, f filled, dir string, form []string) {
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
		for _, k := range f.keys("acme") {
			if unzipped(t, filepath.Join(dir, k.Tenant, k.Run+ending)) != joined(f.runs[k]) {
				t.Errorf("%s: the file is not the run", k)
			}
		}
	}
}

// What has come to a run since is added to the table, and makes the file of the run anew.
func TestExportTakesUpWhatCameSince(t *testing.T) {
	f := sqliteStore(t)
	key := schema.RunKey{Tenant: "acme", Run: "run_long"}
	packs := schematest.Packs(key, schematest.Named("long"), 50)
	put := func(packs []schema.Pack) {
		chunks, err := persister.Chunks(packs...)
		if err == nil {
			_, err = f.store.Append(t.Context(), chunks)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	table, lines := filepath.Join(t.TempDir(), "table"), filepath.Join(t.TempDir(), "lines")
	for i, n := range []int{len(packs) / 3, len(packs) / 2, len(packs)} {
		put(packs[:n])
		f.runs[key] = schematest.Lines(packs[:n])
		for _, args := range [][]string{{"-o", table, "--format", "parquet"}, {"-o", lines}} {
			if i > 0 {
				args = append(args, "--resume")
			}
			if _, _, err := f.export(t, nil, append(args, "--tenant", "acme")...); err != nil {
				t.Fatal(err)
			}
		}
		checkEvents(t, f, readTable[export.EventRow](t, table))
		if unzipped(t, filepath.Join(lines, "acme", "run_long.jsonl")) != joined(f.runs[key]) {
			t.Error("the file is not the run")
		}
	}
	if files, _ := filepath.Glob(filepath.Join(table, "*.parquet")); len(files) != 3 {
		t.Errorf("three exports made %v", files)
	}
}

func TestExportKeepsToItsManifest(t *testing.T) {
	f := sqliteStore(t)
	f.add(t, schema.RunKey{Tenant: "default", Run: "r1"}, schematest.Named("plain"))
	f.add(t, schema.RunKey{Tenant: "default", Run: "r2"}, schematest.Named("plain"))
	fresh := func() (dir, manifest string) {
		dir = t.TempDir()
		if _, _, err := f.export(t, nil, "-o", dir); err != nil {
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
		if _, _, err := f.export(t, nil, "-o", dir, "--resume"); err != nil {
			t.Fatalf("cut by %d: %v", cut, err)
		}
		_, stderr, err := f.export(t, nil, "-o", dir, "--resume")
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
		_, stderr, err := f.export(t, nil, "-o", dir, "--resume")
		if err != nil || !strings.Contains(stderr, "exported 1 runs") || unzipped(t, path) != joined(f.runs[schema.RunKey{Tenant: "default", Run: "r2"}]) {
			t.Errorf("a file was harmed: %v %s", err, stderr)
		}
	}
	// A table that lacks a file is refused.
	table := t.TempDir()
	if _, _, err := f.export(t, nil, "-o", table, "--format", "parquet"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(table, "events-000001.parquet")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.export(t, nil, "-o", table, "--format", "parquet", "--resume"); !errors.Is(err, export.ErrManifest) {
		t.Errorf("a table lacks a file: %v", err)
	}
	dir, manifest = fresh()
	if _, _, err := f.export(t, nil, "-o", dir, "--resume", "--format", "parquet"); !errors.Is(err, export.ErrManifest) {
		t.Errorf("another format: %v", err)
	}
	if err := os.WriteFile(manifest, []byte("what is this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.export(t, nil, "-o", dir, "--resume"); !errors.Is(err, export.ErrManifest) {
		t.Errorf("another manifest: %v", err)
	}
}

// A store that lacks events at a run's end is not silently believed.
func TestExportTellsOfMissingEvents(t *testing.T) {
	f := sqliteStore(t)
	f.add(t, schema.RunKey{Tenant: "default", Run: "r1"}, schematest.Named("long"))
	short := func(c *ExportCmd) {
		c.archive = func(s export.Source) export.Source { return &cut{s} }
	}
	_, stderr, err := f.export(t, short, "-o", filepath.Join(t.TempDir(), "r1.jsonl"))
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
