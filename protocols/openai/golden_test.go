package openai

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/schema/schematest"
)

// TestGolden has the events of each response of every scenario.
func TestGolden(t *testing.T) {
	for _, s := range schematest.All() {
		t.Run(s.Name, func(t *testing.T) {
			records := schematest.RecordsOf(t, "run_a", s)
			var b strings.Builder
			for n := 1; ; n++ {
				list, _ := eventsOf(t, n, records)
				if len(list) == 0 {
					break
				}
				fmt.Fprintf(&b, "# %s\n%s\n", responseID("run_a", n), strings.Join(list, "\n"))
			}
			dialecttest.Golden(t, *update, s.Name+".txt", []byte(b.String()))
		})
	}
}

// TestEventsAreTaken holds the responses of all scenarios, and of runs that are drawn, to what the clients take.
func TestEventsAreTaken(t *testing.T) {
	all := schematest.All()
	for seed := range uint64(60) {
		s := schematest.Generate(400, seed)
		s.Name = fmt.Sprintf("drawn %d", seed)
		all = append(all, s)
	}
	for _, s := range all {
		records := schematest.RecordsOf(t, "run_a", s)
		for n := 1; ; n++ {
			list, ended := eventsOf(t, n, records)
			if len(list) == 0 {
				break
			}
			v := &rules{}
			for i, f := range list {
				if err := v.check(f); err != nil {
					t.Fatalf("%s: response %d, event %d: %v: %s\n%s", s.Name, n, i, err, f, strings.Join(list[max(0, i-8):i], "\n"))
				}
			}
			if v.ended != ended {
				t.Errorf("%s: response %d: the last frame is not the terminal event", s.Name, n)
			}
		}
	}
}

// TestOpen reads requests, and refuses what is none.
func TestOpen(t *testing.T) {
	for id, want := range map[string]string{"resp_run_a": "run_a/1", "resp_run_a.2": "run_a/2", "resp_run_a.1": "",
		"resp_run_a.02": "", "resp_run_a.-2": "",
		"resp_": "", "run_a": "", "resp_run_a.2.3": "", "resp_run_a.0": "", "resp_a b": "", "resp_-": "",
		"resp_run_a.99999999999999999999": ""} {
		req, err := Dialect{}.Open(dialect.Input{Path: map[string]string{"response": id}})
		if got := req.Run + "/" + req.Span; (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s: %s, %v", id, got, err)
		}
	}
	for after, want := range map[string]int{"0": 1, "41": 42, "-1": -1, "x": -1, "": -1, "1.5": -1, "2147483647": -1,
		"99999999999999999999": -1} {
		in := dialect.Input{Path: map[string]string{"response": "resp_a"},
			Query: map[string][]string{"starting_after": {after}}}
		req, err := Dialect{}.Open(in)
		if (err == nil) != (want >= 0) || err == nil && req.Cursor.Frames != want {
			t.Errorf("starting_after %q: %+v, %v", after, req.Cursor, err)
		}
	}
}
