//go:build !race

package serve_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"agentstream/schema/schematest"
)

func TestPagesOfLargeEvents(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	for range 20 {
		h.do("POST", eventsPath(id, ""), `{"events":[{"type":"user.message","content":[{"type":"text","text":"`+
			strings.Repeat("x", 400<<10)+`"}]}]}`).OK(200)
	}
	for _, order := range []string{"asc", "desc"} {
		all := ask{desc: order == "desc"}.of(h.frames(id, ""))
		pages := h.walk(eventsPath(id, ""), url.Values{"order": {order}}, func() int { return 1000 })
		same(t, order, slices.Concat(pages...), all)
		for i, p := range pages {
			if size := len(strings.Join(p, "")); size > 5<<20 || i < len(pages)-1 && size < 3<<20 {
				t.Errorf("%s: page %d of %d has %d bytes", order, i, len(pages), size)
			}
		}
	}
}

// TestHistoryIsTheStream pages through sessions and threads with random sizes, orders and filters: what comes
// together is exactly what the stream shows.
func TestHistoryIsTheStream(t *testing.T) {
	h := newHouse(t, false)
	rng := rand.New(rand.NewPCG(1, 7))
	scenarios := append(schematest.All(), schematest.Generate(3000, 11), schematest.Generate(1500, 12))
	for i, s := range scenarios {
		run := fmt.Sprintf("run_%d", i)
		h.fill(run, s, 1+rng.IntN(40))
		some := 0
		for _, thread := range h.threadsOf(run) {
			all := h.frames(run, thread)
			some += len(all)
			for range 4 {
				a := randomAsk(rng, all)
				size := func() int { return 1 + rng.IntN(60) }
				if len(all) > 1000 {
					size = func() int { return 1 + rng.IntN(1000) }
				}
				pages := h.walk(eventsPath(run, thread), a.query(), size)
				same(t, fmt.Sprintf("%s thread %q %+v", s.Name, thread, a), slices.Concat(pages...), a.of(all))
			}
		}
		if some == 0 {
			t.Errorf("scenario %s shows nothing", s.Name)
		}
	}
}

// TestCursorsInTheMiddle begins behind and in front of random events: after_id goes on in the order of the list,
// before_id gives what is in front of it, the nearest first.
func TestCursorsInTheMiddle(t *testing.T) {
	h := newHouse(t, false)
	rng := rand.New(rand.NewPCG(3, 4))
	h.fill("run", schematest.Generate(1200, 5), 16)
	for _, thread := range h.threadsOf("run") {
		all := h.frames("run", thread)
		for range 25 {
			i := rng.IntN(len(all))
			a := randomAsk(rng, all)
			rest, cursor := all[i+1:], "after_id"
			before := rng.IntN(2) == 0
			if before {
				rest, cursor = all[:i], "before_id"
			}
			if a.desc { // what comes later in the list is what is older
				rest = all[:i]
				if before {
					rest = all[i+1:]
				}
			}
			q := a.query()
			q.Set(cursor, all[i].id)
			pages := h.walk(eventsPath("run", thread), q, func() int { return 1 + rng.IntN(300) })
			if before {
				slices.Reverse(pages) // each page lies in front of the one before it
			}
			same(t, fmt.Sprintf("thread %q %s %d of %d %+v", thread, cursor, i, len(all), a), slices.Concat(pages...),
				a.of(rest))
		}
	}
}
