//go:build !race

package schema_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/internal/cputime"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestFoldOfMuch: what a fold does with many of everything grows with their number alone.
func TestFoldOfMuch(t *testing.T) {
	const n = 20_000
	for name, write := range map[string]func(i int) (lane, typ, payload string){
		"blocks": func(i int) (string, string, string) {
			return "", "text.delta", fmt.Sprintf(`{"index":%d,"text":"x"}`, i)
		},
		"inputs": func(i int) (string, string, string) {
			return "", "tool.input.delta", fmt.Sprintf(`{"call_id":"c%d","text":"x"}`, i)
		},
		"calls": func(i int) (string, string, string) {
			return "", "tool.start", fmt.Sprintf(`{"call_id":"c%d","tool":"x"}`, i)
		},
		"lanes": func(i int) (string, string, string) { return fmt.Sprintf("run_%d", i), "text.delta", `{"text":"x"}` },
		"waiting": func(i int) (string, string, string) {
			if i%2 == 0 {
				return "", "command.message", `{"content":"x"}`
			}
			return "", "run.lifecycle", `{"state":"running"}`
		},
		"ends": func(i int) (string, string, string) {
			if i%2 == 0 {
				return fmt.Sprintf("run_%d", i), "text.delta", `{"text":"x"}`
			}
			return "", "run.lifecycle", [2]string{`{"state":"running"}`, `{"state":"done"}`}[i/2%2]
		},
	} {
		cost := func(n int) time.Duration {
			var f schema.Fold
			took := cputime.Of(func() {
				for i := range n {
					lane, typ, payload := write(i)
					f.Add(&schema.Event{Type: typ, ChildID: lane, Seq: schema.Seq(i + 1), Payload: []byte(payload)})
				}
			})
			if b := f.AppendSnapshot(nil); len(b) > f.Size()+2000 {
				t.Errorf("%s: size %d, snapshot of %d bytes", name, f.Size(), len(b))
			}
			return took
		}
		few, many := cost(n), cost(8*n)
		t.Logf("%-8s %7d: %8v  %7d: %8v", name, n, few, 8*n, many)
		if many > 40*few+200*time.Millisecond { // 64 times if it were quadratic
			t.Errorf("%s: %v for %d, %v for %d", name, few, n, many, 8*n)
		}
	}
}

// TestSnapshotContinues: a client that has the snapshot of any prefix, and folds the rest, has what
// one has that folded everything. A prefix's snapshot is a snapshot.
func TestSnapshotContinues(t *testing.T) {
	sch := contract(t)
	for _, s := range snapshotCases() {
		lines := linesOf(s)
		want := string(foldLines(lines).AppendSnapshot(nil))
		step := 1 + len(lines)/150
		prefix := new(schema.Fold)
		for i, line := range lines {
			if i%step == 0 && i > 0 {
				snapshot := prefix.AppendSnapshot(nil)
				checkSnapshot(t, sch, snapshot)
				f, err := schema.ParseSnapshot(snapshot)
				if err != nil {
					t.Fatalf("%s at %d: %v", s.Name, i, err)
				}
				if again := f.AppendSnapshot(nil); !bytes.Equal(again, snapshot) {
					t.Fatalf("%s at %d: read and written again%s", s.Name, i, firstDifference(snapshot, again))
				}
				if d := f.Size() - prefix.Size(); d > 4096+prefix.Size()/5 || -d > 4096+prefix.Size()/5 {
					t.Errorf("%s at %d: size %d, was %d", s.Name, i, f.Size(), prefix.Size())
				}
				for _, rest := range lines[i:] {
					f.AddRecord(scanned(t, rest))
				}
				if got := string(f.AppendSnapshot(nil)); got != want {
					t.Fatalf("%s from %d%s", s.Name, i, firstDifference([]byte(want), []byte(got)))
				}
			}
			prefix.AddRecord(scanned(t, line))
		}
		if got := string(prefix.AppendSnapshot(nil)); got != want {
			t.Fatalf("%s: looking changed it%s", s.Name, firstDifference([]byte(want), []byte(got)))
		}
	}
}

// TestLinesKeepTheContract: every line of every scenario, and every example of every type.
func TestLinesKeepTheContract(t *testing.T) {
	sch, compiler := anyEvent(t), eventContracts(t)
	n, seen := 0, map[string]bool{}
	check := func(name, line string) {
		n++
		if err := holds(sch, line); err != nil {
			t.Errorf("%s: %v\n%.500s", name, err, line)
		}
	}
	for _, s := range append(schematest.All(), schematest.Generate(1500, 5)) {
		for _, line := range linesOf(s) {
			check(s.Name, line)
		}
	}
	for _, info := range append(schema.Types(), schema.TypeInfo{Name: "custom.example"}) {
		one, err := compiler.Compile(anyURN + ":" + info.Name)
		for i, p := range examples[info.Name] {
			e := schematest.NumberEvents(testRun,
				schematest.Scenario{Events: []schema.Event{{Type: info.Name, Payload: []byte(p)}}})[0]
			line := string(e.AppendLine(nil))
			check(fmt.Sprintf("%s example %d", info.Name, i), line)
			if info.Family == "" { // custom.* has no file of its own
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := holds(one, line); err != nil {
				t.Errorf("%s: %v", info.Name, err)
			}
			seen[info.Name] = true
			if other := strings.Replace(line, info.Name, "custom.other", 1); holds(one, other) == nil {
				t.Errorf("%s: the contract takes another type", info.Name)
			}
		}
	}
	if n < 3000 || len(seen) != len(schema.Types()) {
		t.Errorf("%d lines, %d types", n, len(seen))
	}
}

// TestPacksKeepTheContract: headers, body and subject of every pack are as the document tells, and the
// document tells of nothing that no pack has.
func TestPacksKeepTheContract(t *testing.T) {
	a := readAsyncAPI(t)
	message := a.Components.Messages["pack"]
	headers, body, line := a.compile(t, message.Headers.Ref), a.compile(t, message.Payload.Ref), anyEvent(t)
	stored, live := a.subject(t, "packs"), a.subject(t, "live")
	count := map[string]int{}
	packs := variants()
	for i := range packs {
		p := &packs[i]
		h := single(t, p.Headers())
		if err := headers.Validate(h); err != nil {
			t.Errorf("%v: %v", h, err)
		}
		for name := range h {
			count[name]++
		}
		if err := body.Validate(string(p.Body)); err != nil {
			t.Errorf("body of %s %d: %v", p.Key, p.First, err)
		}
		for l := range schema.Lines(p.Body) {
			if i%20 > 0 { // TestLinesKeepTheContract has the others
				break
			}
			if err := holds(line, string(l)); err != nil {
				t.Errorf("%v: %.200s", err, l)
			}
		}
		for _, partitions := range []int{1, 8, 256} {
			subject := schema.Subject(p.Key, p.Child, partitions)
			if !stored.MatchString(subject) || live.MatchString(subject) || !live.MatchString("live."+subject) {
				t.Errorf("subject %s", subject)
			}
		}
	}
	told := a.Components.Schemas["packHeaders"]
	if got, want := slices.Sorted(maps.Keys(count)), slices.Sorted(maps.Keys(told.Properties)); !slices.Equal(got, want) {
		t.Errorf("packs have %v, the document %v", got, want)
	}
	for name, n := range count {
		if always := n == len(packs); always != slices.Contains(told.Required, name) {
			t.Errorf("%s is on %d of %d packs", name, n, len(packs))
		}
	}
	for _, e := range message.Examples {
		h := map[string][]string{}
		for name, v := range e.Headers {
			h[name] = []string{v}
		}
		p, err := schema.ParsePack("agent.3.acme.run_1.-", h, []byte(e.Payload), 1)
		if err == nil {
			err = p.Check()
		}
		if err != nil || headers.Validate(single(t, h)) != nil {
			t.Errorf("example: %v", err)
		}
	}
}
