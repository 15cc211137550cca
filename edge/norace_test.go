//go:build !race

package edge_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema/schematest"
)

// TestServerKeepsItsContract asks every route in every way in which the contract says that it answers.
func TestServerKeepsItsContract(t *testing.T) {
	k := &talk{t: t, c: readContract(t)}
	h := k.house()
	h.store("ended", schematest.ByName("plain"), 5)
	table := rows(t)
	k.refusals(h, table)
	k.faults(h, table)
	k.reads(h)
	k.operates()
	k.writes(h)
	k.publishes(h)
	k.large(h)
	k.commands(h)
	k.taps()
	k.work()
	k.audits()
	k.limits(table)
	k.calls(h, table)
	if err := k.c.kept(); err != nil {
		t.Error(err)
	}
	t.Logf("%d requests, %d statuses and codes", len(k.said), len(k.c.seen))
	k.changed()
}

// TestViewsKeepTheContract: every frame of every view of every scenario is an event of the JSON
// Schemas.
func TestViewsKeepTheContract(t *testing.T) {
	k := &talk{t: t, c: readContract(t)}
	h := k.house(func(c *edge.Config) { c.Catalog = edgetest.Family{} })
	types := map[string]int{}
	merged := 0
	see := func(name, line string) {
		if err := k.c.instance("events/any.schema.json", line); err != nil {
			t.Errorf("%s: %v\n%.500s", name, err, line)
		}
		var e struct {
			Type     string
			FirstSeq *int `json:"first_seq"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if types[e.Type]++; e.FirstSeq != nil {
			merged++
		}
	}
	for i, s := range append(schematest.All(), schematest.Generate(1000, 9)) {
		run := fmt.Sprintf("run_%d", i)
		if s.Name == "children" {
			run = "run" // whose children are known
		}
		h.store(run, s, 6)
		queries := []string{"", "?bundle=true"}
		if len(s.Events) < 1500 {
			queries = append(queries, "?detail=full", "?child=-&nested=true", "?types=message.*")
		}
		if i == 0 {
			queries = append(queries, "?speed=1000")
		}
		for _, query := range queries {
			a := h.ask("GET", edgetest.RunsPath+"/{run}/stream", run, query, "")
			lines, err := eventsIn("text/event-stream", a.Body)
			if err != nil || len(lines) == 0 {
				t.Fatalf("%s%s: %d, %v", s.Name, query, a.Status, err)
			}
			for _, line := range lines {
				see(s.Name+query, line)
			}
		}
		for _, path := range []string{"/replay.jsonl", "/snapshot", "/events"} {
			h.ask("GET", edgetest.RunsPath+"/{run}"+path, run, "", "")
		}
		h.begun(run, see)
	}
	for _, child := range []string{schematest.ChildA, schematest.ChildB, schematest.Grandchild} {
		for _, path := range []string{"/stream", "/snapshot"} {
			h.ask("GET", edgetest.RunsPath+"/{run}"+path, child, "", "")
		}
	}
	if types["run.snapshot"] == 0 || types["delta.bundle"] == 0 || merged < 100 || len(types) < 15 {
		t.Errorf("%d merged, %v", merged, types)
	}
}

// TestContractIsValid holds the document to OpenAPI 3.1, and its codes to the table of ends.
func TestContractIsValid(t *testing.T) {
	c := readContract(t)
	if err := c.doc.Validate(t.Context()); err != nil || !c.doc.IsOpenAPI31OrLater() {
		t.Errorf("version %s: %v", c.doc.OpenAPI, err)
	}
	ids := map[string]bool{}
	for _, item := range c.doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.OperationID == "" || op.Summary == "" || ids[op.OperationID] {
				t.Errorf("operation %q %q", op.OperationID, op.Summary)
			}
			ids[op.OperationID] = true
		}
	}
	used := string(contractYAML(t))
	for kind, names := range map[string][]string{
		"responses":  slices.Collect(maps.Keys(c.doc.Components.Responses)),
		"parameters": slices.Collect(maps.Keys(c.doc.Components.Parameters)),
		"headers":    slices.Collect(maps.Keys(c.doc.Components.Headers)),
		"schemas":    slices.Collect(maps.Keys(c.doc.Components.Schemas)),
	} {
		for _, name := range names {
			if !strings.Contains(used, "#/components/"+kind+"/"+name+"'") {
				t.Errorf("%s %s is used nowhere", kind, name)
			}
		}
	}
}
