package reaper_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/producers/reaper"
	"agentstream/schema"
)

// What finishes runs that need no writer is asked before anybody is looked for: about those that are open, and it
// decides whether the run is left alone. An error leaves it alone as well.
func TestReaperFinishes(t *testing.T) {
	for name, tt := range map[string]struct {
		final    bool
		finished bool
		err      error
		asked    int
		reaped   int
	}{
		"its own":   {finished: true, asked: 1},
		"another's": {asked: 1, reaped: 1},
		"trouble":   {err: errors.New("no log"), asked: 1},
		"over":      {final: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, asked, reaped := newWorld(), 0, 0
			tell(t, w, "", schema.TypeRunLifecycle, `{"state":"running"}`)
			if tt.final {
				tell(t, w, "", schema.TypeRunLifecycle, `{"state":"done"}`)
			}
			r, err := reaper.New(reaper.Config{Log: w, Lister: w, Witness: w,
				Hooks: reaper.Hooks{Reaped: func(schema.RunKey, bool) { reaped++ }},
				Finish: func(_ context.Context, k schema.RunKey) (bool, time.Time, error) {
					if k != key {
						t.Errorf("%s: asked about %s", name, k)
					}
					asked++
					return tt.finished, time.Time{}, tt.err
				}})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(25 * time.Hour)
			if err := r.Round(t.Context()); err != nil || asked != tt.asked || reaped != tt.reaped {
				t.Errorf("%s: asked %d times, reaped %d, %v", name, asked, reaped, err)
			}
		})
	}
}

// A run that Finish has left for later is not asked about before, in any round; so are those that nobody may end.
func TestReaperFinishesLater(t *testing.T) {
	for name, after := range map[string]time.Duration{"on": 0, "off": -1} {
		synctest.Test(t, func(t *testing.T) {
			w, asked, reaped := newWorld(), 0, 0
			tell(t, w, "", schema.TypeRunLifecycle, `{"state":"running"}`)
			r, err := reaper.New(reaper.Config{Log: w, Lister: w, Witness: w, After: after, Unowned: after,
				Hooks: reaper.Hooks{Reaped: func(schema.RunKey, bool) { reaped++ }},
				Finish: func(context.Context, schema.RunKey) (bool, time.Time, error) {
					asked++
					return asked < 3, time.Now().Add(10 * time.Minute), nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			round := func(want int) {
				t.Helper()
				if err := r.Round(t.Context()); err != nil || asked != want || reaped != 0 {
					t.Errorf("%s: asked %d times, want %d; reaped %d, %v", name, asked, want, reaped, err)
				}
			}
			round(1)
			time.Sleep(9 * time.Minute)
			round(1)
			time.Sleep(time.Minute)
			round(2)
			time.Sleep(10 * time.Minute)
			round(3) // it is none of Finish's; without writers that may be ended it stays
		})
	}
}
