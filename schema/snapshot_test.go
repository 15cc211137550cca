package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// contract compiles contracts/snapshot.schema.json.
func contract(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("contracts/snapshot.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:agentstream:snapshot", doc); err != nil {
		t.Fatal(err)
	}
	sch, err := c.Compile("urn:agentstream:snapshot")
	if err != nil {
		t.Fatal(err)
	}
	return sch
}

func checkSnapshot(t testing.TB, sch *jsonschema.Schema, snapshot []byte) {
	t.Helper()
	if !json.Valid(snapshot) {
		t.Fatalf("not JSON: %.2000s", snapshot)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if err := sch.Validate(doc); err != nil {
		t.Fatalf("%v\n%.2000s", err, snapshot)
	}
}

// snapshotCases are runs that say something to a fold: the named ones, a random one, some that were damaged, and those
// below.
func snapshotCases() []schematest.Scenario {
	all := append(append(schematest.All(), rare...),
		schematest.Scenario{Name: "generated", Events: schematest.Generate(1500, 11).Events})
	for seed := range uint64(8) {
		all = append(all, schematest.MakeDamaged(seed, 8).Scenario)
	}
	for _, seed := range schematest.SeedsOfDamage(0) {
		all = append(all, schematest.MakeDamaged(seed, 1+int(seed%4)).Scenario)
	}
	return append(all, beginsAgain)
}

func foldLines(lines []string) *schema.Fold {
	f := new(schema.Fold)
	for _, line := range lines {
		r, err := schema.ScanLine([]byte(line))
		if err != nil {
			panic(err)
		}
		f.AddRecord(r)
	}
	return f
}

func linesOf(s schematest.Scenario) []string {
	return schematest.Lines(schematest.Packs(schema.RunKey{Tenant: "acme", Run: testRun}, s, 0))
}

// TestGoldenSnapshots pins the snapshot of each run, and has the run beside it: clients in other
// languages fold the same lines to the same shape.
func TestGoldenSnapshots(t *testing.T) {
	sch := contract(t)
	for _, s := range snapshotCases() {
		t.Run(s.Name, func(t *testing.T) {
			lines := linesOf(s)
			snapshot := foldLines(lines).AppendSnapshot(nil)
			checkSnapshot(t, sch, snapshot)
			golden(t, "snapshots/"+s.Name+".jsonl", []byte(strings.Join(lines, "\n")+"\n"))
			golden(t, "snapshots/"+s.Name+".json", append(snapshot, '\n'))
			if b := foldOf(s).AppendSnapshot(nil); !bytes.Equal(b, snapshot) {
				t.Errorf("Add and AddRecord differ%s", firstDifference(b, snapshot))
			}
		})
	}
	files, err := filepath.Glob("testdata/snapshots/*")
	if err != nil || len(files) != 2*len(snapshotCases()) {
		t.Errorf("%d files for %d runs, %v", len(files), len(snapshotCases()), err)
	}
}

func scanned(t testing.TB, line string) schema.Record {
	t.Helper()
	r, err := schema.ScanLine([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// merged joins neighbouring deltas at random, as a view does: same type, child, attributes and
// payload around the text.
func merged(t testing.TB, lines []string, rng *rand.Rand) (out []string) {
	t.Helper()
	var (
		last  schema.Record
		first schema.Seq
		text  []byte
	)
	flush := func() {
		if last.Line == nil {
			return
		}
		var payload []byte
		if first != last.Seq {
			before, _, after, _ := schema.SplitText(last.Payload())
			payload = bytes.Join([][]byte{before, text, after}, nil)
		}
		out = append(out, string(last.AppendSpan(nil, first, payload)))
		last = schema.Record{}
	}
	for _, line := range lines {
		r := scanned(t, line)
		before, mine, after, ok := schema.SplitText(r.Payload())
		ok = ok && r.IsDelta()
		if ok && last.Line != nil && rng.IntN(5) > 0 {
			b, _, a, same := schema.SplitText(last.Payload())
			if same && last.IsDelta() && bytes.Equal(a, after) && bytes.Equal(b, before) && bytes.Equal(r.Type, last.Type) &&
				bytes.Equal(r.Child, last.Child) && bytes.Equal(r.Attributes(), last.Attributes()) {
				text = append(text, mine...)
				last = r
				continue
			}
		}
		flush()
		last, first, text = r, r.Seq, append([]byte(nil), mine...)
	}
	flush()
	return out
}

// TestSnapshotOfMergedDeltas: folding a view that merges leads to the very same bytes.
func TestSnapshotOfMergedDeltas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range append(snapshotCases(), schematest.Generate(3000, 5)) {
		lines := linesOf(s)
		want := foldLines(lines).AppendSnapshot(nil)
		fewer := 0
		for range 4 {
			view := merged(t, lines, rng)
			fewer += len(lines) - len(view)
			if got := foldLines(view).AppendSnapshot(nil); !bytes.Equal(got, want) {
				t.Fatalf("%s%s", s.Name, firstDifference(want, got))
			}
		}
		if fewer == 0 && s.Name == "long" {
			t.Errorf("%s: nothing was merged", s.Name)
		}
	}
}

// TestSnapshotInView: a run.snapshot and a delta.bundle of a view lead to the same fold.
func TestSnapshotInView(t *testing.T) {
	lines := linesOf(schematest.ByName("children"))
	want := foldLines(lines).AppendSnapshot(nil)
	for n := 1; n < len(lines); n++ {
		prefix := foldLines(lines[:n])
		first := fmt.Appendf(nil, `{"id":%q,"ts":%q,"type":"run.snapshot","run_id":%q,"child_id":null,"seq":%d,"first_seq":1,"payload":`,
			prefix.LastID(), prefix.LastTS(), testRun, n)
		view := append([]string{string(append(prefix.AppendSnapshot(first), '}'))}, lines[n:]...)
		if got := foldLines(view).AppendSnapshot(nil); !bytes.Equal(got, want) {
			t.Fatalf("snapshot at %d%s", n, firstDifference(want, got))
		}
	}
	for i := range len(lines) - 1 {
		a, b := scanned(t, lines[i]), scanned(t, lines[i+1])
		if !a.IsDelta() || !b.IsDelta() {
			continue
		}
		part := func(r schema.Record) string {
			return fmt.Sprintf(`{"type":%q,"child_id":%q%s,"payload":%s}`, r.Type, r.Child, r.Attributes(), r.Payload())
		}
		bundle := b.AppendBundle(nil, "delta.bundle", a.Seq, func(dst []byte) []byte {
			return append(dst, `{"deltas":[`+part(a)+","+part(b)+`]}`...)
		})
		view := append(append(append([]string(nil), lines[:i]...), string(bundle)), lines[i+2:]...)
		if got := foldLines(view).AppendSnapshot(nil); !bytes.Equal(got, want) {
			t.Fatalf("bundle at %d%s", i, firstDifference(want, got))
		}
	}
}

func TestParseSnapshotRefuses(t *testing.T) {
	for _, bad := range []string{"", "null", "[]", "{}", `{"messages":{}}`, `{"messages":[]`,
		"{\"messages\":[],\"run_id\":\"\xff\"}"} {
		if f, err := schema.ParseSnapshot([]byte(bad)); err == nil {
			t.Errorf("%q gives %+v", bad, f)
		}
	}
	f, err := schema.ParseSnapshot([]byte(`{"messages":[1,{"blocks":[null,{"index":-1}]}],"children":[{}, {"child_id":"a"},{"child_id":"a"}],"plan":7,"commands":[{"command":"dance"}],"usage":[],"inputs":[{}],"tool_calls":[{}],"later":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, contract(t), f.AppendSnapshot(nil))
}

// TestLightFold: what decides on commands is in a light fold as in a whole one, wherever it was
// lightened.
func TestLightFold(t *testing.T) {
	for _, s := range snapshotCases() {
		lines := linesOf(s)
		for _, at := range []int{0, 1, len(lines) / 3, len(lines) / 2, len(lines)} {
			f := foldLines(lines[:at])
			f.Lighten()
			for _, line := range lines[at:] {
				f.AddRecord(scanned(t, line))
			}
			whole := foldLines(lines)
			if !f.Light() || len(f.Messages)+len(f.Calls) > 0 || f.Size() > whole.Size() {
				t.Errorf("%s at %d: %d messages, %d calls, size %d of %d", s.Name, at, len(f.Messages), len(f.Calls),
					f.Size(), whole.Size())
			}
			if got, want := deciding(f), deciding(whole); got != want {
				t.Errorf("%s at %d\nwant %s\n got %s", s.Name, at, want, got)
			}
		}
	}
}

// deciding is what a decision on a command reads.
func deciding(f *schema.Fold) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %q %s", f.Last, f.State, f.Reason, f.Gate)
	if f.Plan != nil {
		fmt.Fprintf(&b, " plan %s %s %s", f.Plan.ID, f.Plan.Gate, f.Plan.Decision)
	}
	for _, c := range f.Children {
		fmt.Fprintf(&b, " child %+v", *c)
	}
	for _, in := range f.Inputs {
		fmt.Fprintf(&b, " input %s %d", in.ID, in.Answered)
	}
	for _, c := range f.Commands() {
		if c.Name != "message" {
			fmt.Fprintf(&b, " %s:%s@%d", c.Child, c.Name, c.Seq)
		}
	}
	return b.String()
}
