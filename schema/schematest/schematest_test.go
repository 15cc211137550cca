package schematest_test

import (
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestScenariosAreAccepted holds every scenario to what a producer's batch is held to.
func TestScenariosAreAccepted(t *testing.T) {
	all := append(schematest.All(), schematest.Generate(5000, 1), schematest.Generate(2, 2), schematest.Generate(300, 3))
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			var body []byte
			for i := range s.Events {
				e := &s.Events[i]
				if e.ID != "" || e.TS != "" || e.RunID != "" || e.Seq != 0 {
					t.Fatalf("event %d is numbered already: %+v", i, e)
				}
				if err := e.CheckNew("run_1"); err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
			}
			events := schematest.NumberEvents("run_1", s)
			for i := range events {
				body = append(events[i].AppendLine(body), '\n')
			}
			got, err := schema.DecodeBatch("run_1", body)
			if err != nil {
				t.Fatal(err)
			}
			for i := range events {
				if want, have := string(events[i].AppendLine(nil)), string(got[i].AppendLine(nil)); want != have {
					t.Fatalf("event %d\nwant %.500s\n got %.500s", i, want, have)
				}
			}
		})
	}
}

// TestPacks checks numbers, lanes and heads, for every size of pack.
func TestPacks(t *testing.T) {
	key := schema.RunKey{Tenant: "t1", Run: "run_1"}
	for _, s := range append(schematest.All(), schematest.Generate(700, 9)) {
		var first string
		for _, perPack := range []int{0, 1, 2, 3, 50} {
			packs := schematest.Packs(key, s, perPack)
			next, end := schema.Seq(1), schema.Head{}
			for i := range packs {
				p := &packs[i]
				if err := p.Check(); err != nil {
					t.Fatalf("%s/%d pack %d: %v", s.Name, perPack, i, err)
				}
				if p.First != next || perPack > 0 && p.Count > perPack || len(p.Body) > schema.MaxPackBytes {
					t.Fatalf("%s/%d pack %d: first %d, %d events, %d bytes", s.Name, perPack, i, p.First, p.Count, len(p.Body))
				}
				if p.Head.Last != p.Last() || p.Head.LastID != schematest.EventID(p.Last()) || p.Head.Stored != uint64(i+1) {
					t.Fatalf("%s/%d pack %d: head %+v", s.Name, perPack, i, p.Head)
				}
				next, end = p.Last()+1, p.Head
			}
			if int(next)-1 != len(s.Events) || !end.State.Final() {
				t.Fatalf("%s/%d: %d of %d events, head %+v", s.Name, perPack, next-1, len(s.Events), end)
			}
			lines := strings.Join(schematest.Lines(packs), "\n")
			if first == "" {
				first = lines
			}
			if lines != first {
				t.Fatalf("%s/%d: the size of packs changed the lines", s.Name, perPack)
			}
		}
	}
}

// TestShape holds the scenarios to what their names promise.
func TestShape(t *testing.T) {
	if n := len(schematest.ByName("long").Events); n != schematest.LongEvents {
		t.Errorf("long has %d events", n)
	}
	for _, n := range []int{2, 3, 10, 999} {
		if got := len(schematest.Generate(n, uint64(n)).Events); got != n {
			t.Errorf("Generate(%d) made %d", n, got)
		}
	}
	lanes := map[string]bool{}
	for _, e := range schematest.Generate(5000, 1).Events {
		lanes[e.ChildID] = true
	}
	if len(lanes) < 4 {
		t.Errorf("generated run has lanes %v", lanes)
	}
	for _, e := range schematest.NumberEvents("run_z", schematest.ByName("children")) {
		if e.ChildID == schematest.Grandchild && strings.Join(e.Path, "/") != "run_z/run_child_a/run_child_a_1" {
			t.Errorf("path %v", e.Path)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown name passed")
		}
	}()
	schematest.ByName("no such")
}
