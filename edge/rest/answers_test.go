package rest_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
)

// asked is a run in which questions come and go, and what waits in it by the rules that people read: a question waits
// until its answer, the end of its call, a cancelled turn of its lane, or the end of its lane or of the run.
type asked struct {
	h     *edgetest.House
	run   string
	rng   *rand.Rand
	known []string          // every id that was ever asked
	waits map[string]string // lane, by id
	over  bool
	kid   bool // it runs
}

// tell writes events as the agent does.
func (a *asked) tell(format string, args ...any) { a.h.Tell(a.run, fmt.Sprintf(format, args...)) }

// forget ends the questions of a lane, or of all lanes.
func (a *asked) forget(lane string, all bool) {
	maps.DeleteFunc(a.waits, func(_, of string) bool { return all || of == lane })
}

// ask asks something new.
func (a *asked) ask() {
	id := fmt.Sprintf("%c%d", "qck"[a.rng.IntN(3)], len(a.known))
	switch id[0] {
	case 'q':
		a.tell(`{"type":"input.requested","payload":{"request_id":%q,"prompt":"Which?"}}`, id)
	case 'c':
		a.tell(`{"type":"tool.start","payload":{"call_id":%q,"tool":"ask","input":{},"custom":true}}`, id)
	case 'k':
		if !a.kid {
			a.h.Tell(a.run, edgetest.ChildSpeaks)
			a.kid = true
		}
		a.tell(`{"type":"input.requested","child_id":"kid","payload":{"request_id":%q,"prompt":"Where?"}}`, id)
	}
	a.known = append(a.known, id)
	a.waits[id] = map[byte]string{'k': "kid"}[id[0]]
}

// step lets something happen.
func (a *asked) step() {
	if a.over {
		if a.rng.IntN(2) == 0 {
			orderOnce(a.h, a.run, "messages", edgetest.Bodies["messages"])
			a.h.Tell(a.run, edgetest.Lifecycle("running"))
			a.over = false
		}
		return
	}
	switch a.rng.IntN(9) {
	case 0:
		a.tell(`{"type":"turn.start","payload":{"turn_id":"t%d"}}`, len(a.known))
		a.tell(`{"type":"turn.end","payload":{"turn_id":"t%d","stop_reason":"cancelled"}}`, len(a.known))
		a.forget("", false)
	case 1:
		a.tell(`{"type":"turn.end","payload":{"turn_id":"u%d","stop_reason":"end_turn"}}`, len(a.known))
	case 2:
		for id := range a.waits {
			if id[0] == 'c' {
				a.tell(`{"type":"tool.end","payload":{"call_id":%q,"ok":true}}`, id)
				delete(a.waits, id)
				break
			}
		}
	case 3:
		if a.kid {
			a.tell(`{"type":"run.lifecycle","child_id":"kid","payload":{"state":"aborted"}}`)
			a.forget("kid", false)
			a.kid = false
		}
	case 4:
		if a.rng.IntN(3) == 0 {
			a.h.Tell(a.run, edgetest.Lifecycle([]string{"aborted", "done", "error"}[a.rng.IntN(3)]))
			a.forget("", true)
			a.over, a.kid = true, false
		}
	default:
		a.ask()
	}
}

// answer sends an answer to any question that was ever asked, or to none, and checks what becomes of it.
func (a *asked) answer(t *testing.T) {
	t.Helper()
	id := "nobody"
	if n := len(a.known); n > 0 && a.rng.IntN(6) > 0 {
		id = a.known[a.rng.IntN(n)]
	}
	last := a.h.Last(a.run)
	r := orderOnce(a.h, a.run, "answer", fmt.Sprintf(`{"request_id":%q,"answer":1}`, id))
	if _, open := a.waits[id]; open {
		if r.Status != http.StatusAccepted || a.h.Last(a.run) != last+1 {
			t.Errorf("%s: an answer to %s, which waits: %d %s", a.run, id, r.Status, r.Body)
		}
		delete(a.waits, id)
		return
	}
	if p := r.Expect(t, http.StatusConflict, "STATE-FORBIDS"); a.h.Last(a.run) != last {
		t.Errorf("%s: an answer to %s was refused and stored: %s", a.run, id, p.Message)
	} else if !a.over {
		for _, other := range slices.Sorted(maps.Keys(a.waits)) {
			if len(a.waits) < 4 && !strings.Contains(p.Message, other) {
				t.Errorf("%s: a refusal does not name %s: %s", a.run, other, p.Message)
			}
		}
	}
}

// TestGeneratedAnswers: an answer is taken for what waits, and for nothing else: not for what was answered, cancelled,
// ended or never asked, nor in a run that has ended or has begun anew.
func TestGeneratedAnswers(t *testing.T) {
	h := edgetest.NewHouse(t)
	for seed := range uint64(40) {
		a := &asked{h: h, run: fmt.Sprintf("asked_%d", seed), rng: rand.New(rand.NewPCG(seed, 34)),
			waits: map[string]string{}}
		a.h.Tell(a.run, edgetest.Lifecycle("running"))
		for range 24 {
			a.step()
			a.answer(t)
		}
		if t.Failed() {
			return
		}
	}
}
