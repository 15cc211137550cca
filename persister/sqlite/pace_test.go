package sqlite

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPace checks that only a paced transaction rests, and only when its slice is over.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		name  string
		rests bool
		spent time.Duration
		want  time.Duration
	}{
		{"paced, slice over", true, slice, rest},
		{"paced, within its slice", true, slice - 1, 0},
		{"more waits", false, time.Hour, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			p := pace{rests: c.rests, since: begin.Add(-c.spent)}
			p.pause(t.Context())
			p.pause(t.Context()) // a slice has just begun
			if got := time.Since(begin); got != c.want {
				t.Errorf("%s: rested for %v, want %v", c.name, got, c.want)
			}
		})
	}
}
