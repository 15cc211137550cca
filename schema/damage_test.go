package schema_test

import (
	"flag"
	"fmt"
	"reflect"
	"testing"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/schematest"
)

var damaged = flag.Uint64("damaged", 600, "how many damaged logs are read")

// TestDamagedLogs: in logs in which any control event is doubled, missing or late, the fold and the reading of all
// protocols have the same messages, calls, results, questions, children and usage. What is only repeated changes
// nothing in a snapshot.
func TestDamagedLogs(t *testing.T) {
	failed := 0
	for seed := range *damaged {
		d := schematest.MakeDamaged(seed, 1+int(seed%4))
		events := schematest.Numbered(testRun, d.Scenario)
		f, whole := sumOf(events), sumOf(schematest.Numbered(testRun, d.Whole))
		problem := ""
		if got, want := schematest.Summary(f), schematest.Summary(whole); d.Pure && got != want {
			problem = "the snapshot has changed:\n" + schematest.Differences(got, want)
		}
		facts := schematest.FactsOf(f)
		reading := readingOf(events)
		late := len(facts.Results) - len(reading.Results)
		if late > 0 && facts.Has(reading) { // of a call that the end of its run has ended in all protocols
			reading.Results = facts.Results
		}
		if got, want := reading.String(), facts.String(); got != want {
			problem += "the reading and the fold differ:\n" + schematest.Differences(got, want)
		}
		if !d.Again {
			problem += invented(facts, schematest.FactsOf(whole))
		}
		problem += fromSnapshots(t, events, int(seed))
		if problem == "" {
			continue
		}
		t.Errorf("seed %d: %s\n%s", seed, d.What, problem)
		if failed++; failed > 3 {
			t.FailNow()
		}
	}
}

func sumOf(events []schema.Event) *schema.Fold {
	f := new(schema.Fold)
	for i := range events {
		f.Add(&events[i])
	}
	return f
}

// invented returns what a damaged log has that the whole one has not.
func invented(got, whole schematest.Facts) (problem string) {
	for name, n := range got.Usage {
		if n > whole.Usage[name] {
			problem += fmt.Sprintf("%s is %d, of %d\n", name, n, whole.Usage[name])
		}
	}
	if !whole.Has(got) {
		problem += "it has what nobody said:\n" + schematest.Differences(got.String(), whole.String())
	}
	return problem
}

// fromSnapshots compares the fold with one that goes on from a snapshot on the way.
func fromSnapshots(t *testing.T, events []schema.Event, seed int) string {
	cut := 1 + seed%len(events)
	rest, err := schema.ParseSnapshot(sumOf(events[:cut]).AppendSnapshot(nil))
	if err != nil {
		t.Fatal(err)
	}
	for i := cut; i < len(events); i++ {
		rest.Add(&events[i])
	}
	whole := sumOf(events)
	if got, want := string(rest.AppendSnapshot(nil)), string(whole.AppendSnapshot(nil)); got != want {
		return fmt.Sprintf("a fold that goes on behind event %d has\n%s\nwant\n%s\n", cut, got, want)
	}
	if !reflect.DeepEqual(rest.Waiting(), whole.Waiting()) {
		return fmt.Sprintf("behind event %d %v waits, want %v\n", cut, rest.Waiting(), whole.Waiting())
	}
	return ""
}

// readingOf returns the facts that the transitions say.
func readingOf(events []schema.Event) (facts schematest.Facts) {
	a, children := assemble.New(assemble.Limits{}), map[string]bool{}
	for i := range events {
		for _, s := range a.NextEvent(&events[i]) {
			switch child := s.Lane.Child; s.Kind {
			case assemble.MessageOpen:
				if s.Message.Role != "user" {
					facts.Messages = append(facts.Messages, schematest.Fact(child, s.Message.ID))
				}
			case assemble.CallStart:
				facts.Calls = append(facts.Calls, schematest.Fact(child, s.Item.ID))
			case assemble.CallEnd:
				if !s.Repaired {
					ok := string(schema.Field(events[i].Payload, "ok")) == "true"
					facts.Results = append(facts.Results, schematest.Fact(child, s.Item.ID, " ", ok))
				}
			case assemble.InputRequest:
				facts.Questions = append(facts.Questions, schematest.Fact(child, s.Item.ID))
			case assemble.ChildBegin:
				if !children[child] {
					facts.Children = append(facts.Children, child)
				}
				children[child] = true
			case assemble.UsageAdd:
				if s.Message != nil {
					facts.Usage = facts.Usage.Plus(usageIn(s.Value))
				}
			}
		}
	}
	facts.Plan = schematest.FactsOf(sumOf(events)).Plan // it has none
	return facts
}

func usageIn(object []byte) schema.Usage {
	u := schema.Usage{}
	for _, f := range jsonscan.Fields(nil).Read(object) {
		n, _ := jsonscan.WholeNumber(f.Value)
		u[string(f.Name)] = n
	}
	return u
}
