package live_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

type listedSteps struct {
	Steps []struct {
		StepIndex    int        `json:"step_index"`
		StepKind     string     `json:"step_kind"`
		CheckpointID *string    `json:"checkpoint_id"`
		First        schema.Seq `json:"first_seq"`
		Last         schema.Seq `json:"last_seq"`
		TS           string     `json:"ts"`
	} `json:"steps"`
	Next schema.Seq `json:"next_after"`
	More bool       `json:"has_more"`
}

func stepsOf(h *edgetest.House, t testing.TB, run, query string) (list listedSteps) {
	t.Helper()
	a := h.Do("GET", "/v1/agent/runs/"+run+"/steps?"+query, "")
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.Status != 200 {
		t.Fatalf("%d %s: %v", a.Status, a.Body, err)
	}
	return list
}

// TestSteps holds that the steps of a run cover its events up to the last boundary, one by one and page by page, and
// that ?from_step= begins a stream and a page where the step does.
func TestSteps(t *testing.T) {
	h := edgetest.NewHouse(t)
	all := logged(t, h.Fill("run", schematest.ByName("tool"), 3))
	list := stepsOf(h, t, "run", "")
	if len(list.Steps) != 2 || list.More || *list.Steps[0].CheckpointID != "cp_1" || list.Steps[1].CheckpointID != nil {
		t.Fatalf("%+v", list)
	}
	first := schema.Seq(1)
	for i, s := range list.Steps {
		if e := all[s.Last-1]; s.StepIndex != i || s.First != first || e.Type != schema.TypeStepBoundary || e.TS != s.TS {
			t.Errorf("step %d: %+v, ends with %s", i, s, e.Type)
		}
		first = s.Last + 1
		page := stepsOf(h, t, "run", fmt.Sprintf("limit=1&after=%d", s.First-1))
		if len(page.Steps) != 1 || page.Steps[0] != s && page.Steps[0].Last != s.Last || page.More != (i == 0) ||
			page.Next != s.Last {
			t.Errorf("page of step %d: %+v", i, page)
		}
		for _, detail := range []string{"", "&detail=full"} {
			stream := readFrames(t, h.Do("GET", fmt.Sprintf("/v1/agent/runs/run/stream?from_step=%d%s", i, detail),
				"").Events(t))
			tiles(t, stream, s.First-1)
			if stream[len(stream)-1].Seq != all[len(all)-1].Seq {
				t.Errorf("the stream of step %d ends at %d", i, stream[len(stream)-1].Seq)
			}
		}
		var events struct{ Events []schema.Event }
		if a := h.Do("GET", fmt.Sprintf("/v1/agent/runs/run/events?from_step=%d&limit=1", i),
			""); json.Unmarshal([]byte(a.Body), &events) != nil || events.Events[0].Seq != s.First {
			t.Errorf("the page of step %d: %s", i, a.Body)
		}
	}
	// Behind the newest boundary is the step that is under way, and an EventSource comes back with its newer cursor.
	stream := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?from_step=2&detail=full", "").Events(t))
	tiles(t, stream, list.Steps[1].Last)
	stream = readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?from_step=0&detail=full", "", "Last-Event-ID",
		"5").Events(t))
	tiles(t, stream, 5)

	for query, want := range map[string]string{"stream?from_step=9": "CURSOR-AHEAD",
		"events?from_step=9": "CURSOR-AHEAD", "steps?after=9999": "CURSOR-AHEAD"} {
		h.Do("GET", "/v1/agent/runs/run/"+query, "").Expect(t, http.StatusConflict, want)
	}
	for _, query := range []string{"stream?from_step=-1", "stream?from_step=x", "events?from_step=1&order=desc",
		"events?from_step=1&after=1", "steps?limit=0"} {
		h.Do("GET", "/v1/agent/runs/run/"+query, "").Expect(t, http.StatusBadRequest, "BAD-REQUEST")
	}
	h.Do("GET", "/v1/agent/runs/nobody/steps", "").Expect(t, http.StatusNotFound, "NOT-FOUND")
	h.Do("GET", "/v1/agent/runs/nobody/stream?from_step=1", "").Expect(t, http.StatusNotFound, "NOT-FOUND")

	// Steps of children are no steps of the run.
	for _, e := range logged(t, h.Fill("tree", schematest.ByName("children"), 5)) {
		if e.Type == schema.TypeStepBoundary && e.ChildID == "" {
			first = e.Seq
		}
	}
	tree := stepsOf(h, t, "tree", "")
	if n := len(tree.Steps); n == 0 || tree.Steps[n-1].Last != first {
		t.Errorf("%+v, the last boundary is %d", tree, first)
	}
}
