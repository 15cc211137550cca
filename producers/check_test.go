package producers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"agentstream/producers"
	"agentstream/producers/producerstest"
	"agentstream/schema"
)

// What the tests share with those of the packages below.
var (
	newChaos = producerstest.NewFaultyLog
	key      = producerstest.Key
	text     = producerstest.Text
	deadline = producerstest.Deadline
)

// checkRun is the one checker: numbers without a hole, no event twice, each writer's own order, and
// everything acknowledged is there. Texts are "<writer>:<n>"; acked has how many each got through.
func checkRun(t *testing.T, log producers.Log, k schema.RunKey, acked map[string]int) {
	t.Helper()
	next := schema.Seq(1)
	seen := make(map[string]int)
	lastID := ""
	for p, err := range log.Since(context.Background(), k, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Seq != next {
				t.Fatalf("seq %d where %d is next", r.Seq, next)
			}
			next++
			e, err := r.Event()
			if err != nil {
				t.Fatal(err)
			}
			if e.ID <= lastID {
				t.Fatalf("seq %d: id %s after %s", r.Seq, e.ID, lastID)
			}
			lastID = e.ID
			if e.Type != schema.TypeTextDelta {
				continue
			}
			var who string
			var n int
			s := strings.Trim(strings.TrimPrefix(string(e.Payload), `{"text":`), `"}`)
			who, num, _ := strings.Cut(s, ":")
			if _, err := fmt.Sscan(num, &n); err != nil {
				t.Fatalf("payload %s: %v", e.Payload, err)
			}
			if n != seen[who] {
				t.Fatalf("writer %s: event %d where %d is next (seq %d)", who, n, seen[who], r.Seq)
			}
			seen[who]++
		}
	}
	for who, n := range acked {
		if seen[who] < n {
			t.Fatalf("writer %s: %d acknowledged, %d stored", who, n, seen[who])
		}
	}
}
