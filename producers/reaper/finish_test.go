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
				Finish: func(_ context.Context, k schema.RunKey) (bool, error) {
					if k != key {
						t.Errorf("%s: asked about %s", name, k)
					}
					asked++
					return tt.finished, tt.err
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
