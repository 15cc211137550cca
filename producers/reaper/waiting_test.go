package reaper_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/schema"
)

// TestReaperLeavesWhoWaitsWhateverElseComes: whatever else is said behind a question, a pause or a plan, in whatever
// lane it is and however often the reaper was started anew, the run that waits for somebody is not ended.
func TestReaperLeavesWhoWaitsWhateverElseComes(t *testing.T) {
	type said struct{ child, typ, payload string }
	waits := map[string][]said{
		"asks":            {{"", schema.TypeInputRequested, `{"request_id":"q"}`}},
		"a call asks":     {{"", schema.TypeToolStart, `{"call_id":"c","tool":"x","input":{},"permission":"ask"}`}},
		"a call of yours": {{"", schema.TypeToolStart, `{"call_id":"c","tool":"x","input":{},"custom":true}`}},
		"paused":          {{"", schema.TypeRunLifecycle, `{"state":"paused"}`}},
		"awaits approval": {
			{"", schema.TypePlanProposal, `{"plan":{"id":"p","steps":[]},"planning_gate":"required"}`},
			{"", schema.TypeRunLifecycle, `{"state":"awaiting_approval"}`},
		},
		"asked twice": {
			{"", schema.TypeInputRequested, `{"request_id":"q"}`},
			{"", schema.TypeInputRequested, `{"request_id":"q2"}`},
			{"", "command.answer", `{"request_id":"q2"}`},
		},
	}
	beside := []said{
		{"", schema.TypeTextDelta, `{"text":"still here"}`},
		{"", "command.answer", `{"request_id":"nobody asked"}`},
		{"", "command.answer", `{"call_id":"nobody asked"}`},
		{"", "command.message", `{"content":[{"type":"text","text":"hello?"}]}`},
		{"", schema.TypeTurnEnd, `{"turn_id":"t9","stop_reason":"end_turn"}`},
		{"", schema.TypeToolStart, `{"call_id":"c9","tool":"y","input":{}}`},
		{"", schema.TypeToolEnd, `{"call_id":"c9","ok":true}`},
		{"", schema.TypeMessageStart, `{"message_id":"m9","role":"assistant"}`},
		{"", schema.TypeMessageEnd, `{"message_id":"m9"}`},
		{"other", schema.TypeTextDelta, `{"text":"a"}`},
		{"other", schema.TypeRunLifecycle, `{"state":"running"}`},
		{"other", schema.TypeRunLifecycle, `{"state":"done"}`},
		{"other", "command.cancel", `{}`},
		{"other", "command.answer", `{"request_id":"nobody asked"}`},
	}
	for name, log := range waits {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 34))
			lane := []string{"", "kid"}[seed%2]
			all := []said{{"", schema.TypeRunLifecycle, `{"state":"running"}`}}
			for _, s := range log {
				all = append(all, said{lane, s.typ, s.payload})
			}
			for range rng.IntN(5) {
				s := beside[rng.IntN(len(beside))]
				if s.child == "" && rng.IntN(2) == 0 {
					s.child = lane
				}
				all = append(all, s)
			}
			synctest.Test(t, func(t *testing.T) {
				w, reaped := newWorld(), 0
				if seed%4 < 2 {
					put(t, writerOf(t, w), stateEvent(schema.StateRunning))
				}
				for _, s := range all {
					tell(t, w, s.child, s.typ, s.payload)
				}
				for range 3 {
					time.Sleep(100 * time.Hour)
					if err := w.reaper(t, &reaped).Round(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if reaped != 0 {
					t.Errorf("%s in %q, seed %d: it was ended: %v", name, lane, seed, all)
				}
			})
		}
	}
}
