package serve_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/protocols/qoder"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// ask is a filter and an order.
type ask struct {
	types []string
	span  [2]time.Time // from, before; zero: no bound
	desc  bool
}

func (a ask) query() url.Values {
	q := url.Values{}
	if a.types != nil {
		q.Set("types", strings.Join(a.types, ","))
	}
	if !a.span[0].IsZero() {
		q.Set("created_at[gte]", a.span[0].Format(time.RFC3339Nano))
	}
	if !a.span[1].IsZero() {
		q.Set("created_at[lt]", a.span[1].Format(time.RFC3339Nano))
	}
	if a.desc {
		q.Set("order", "desc")
	}
	return q
}

func (a ask) of(all []shown) (want []string) {
	for _, f := range all {
		if a.types != nil && !slices.Contains(a.types, f.typ) || f.at.Before(a.span[0]) || !a.span[1].IsZero() &&
			!f.at.Before(a.span[1]) {
			continue
		}
		want = append(want, f.data)
	}
	if a.desc {
		slices.Reverse(want)
	}
	return want
}

// walk follows next_page from a first request on, with pages of random size, and returns all pages.
func (h *house) walk(path string, q url.Values, size func() int) (pages [][]string) {
	h.t.Helper()
	seen := map[string]bool{}
	for {
		limit := size()
		q.Set("limit", fmt.Sprint(limit))
		p := h.page(path + "?" + q.Encode())
		if len(p.Data) > limit {
			h.t.Fatalf("%d objects of %d", len(p.Data), limit)
		}
		pages = append(pages, texts(p.Data))
		if p.Next == nil {
			return pages
		}
		if seen[*p.Next] {
			h.t.Fatalf("%s: cursor comes again after %d pages", path, len(pages))
		}
		seen[*p.Next] = true
		q.Del("after_id")
		q.Del("before_id")
		q.Set("page", *p.Next)
	}
}

// threadsOf returns the ids of a run's threads and "" for the session.
func (h *house) threadsOf(run string) []string {
	ids := []string{""}
	for _, o := range h.page(cloud + "/" + run + "/threads?limit=1000").Data {
		ids = append(ids, idOf(o))
	}
	return ids
}

func eventsPath(run, thread string) string {
	if thread == "" {
		return cloud + "/" + run + "/events"
	}
	return cloud + "/" + run + "/threads/" + thread + "/events"
}

func randomAsk(rng *rand.Rand, all []shown) (a ask) {
	a.desc = rng.IntN(2) == 0
	if len(all) == 0 {
		return a
	}
	if rng.IntN(2) == 0 {
		for range 1 + rng.IntN(3) {
			a.types = append(a.types, all[rng.IntN(len(all))].typ)
		}
	}
	switch rng.IntN(4) {
	case 0:
		a.span[0] = all[rng.IntN(len(all))].at
	case 1:
		a.span[1] = all[rng.IntN(len(all))].at
	}
	return a
}

// TestPagesWhileItGrows appends while pages are read: each event comes once, none is passed over.
func TestPagesWhileItGrows(t *testing.T) {
	h := newHouse(t, false)
	h.fill("run", schematest.Generate(600, 21), 8)
	before := h.frames("run", "")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.do("POST", eventsPath("run", ""), fmt.Sprintf(`{"events":[{"type":"user.message","content":[{"type":"text","text":"%d"}]}]}`, i)).OK(200)
			}
		}
	})
	size := func() int { return 7 }
	down := h.walk(eventsPath("run", ""), url.Values{"order": {"desc"}}, size)
	q := url.Values{"limit": {"7"}}
	var up []string
	for len(up) < len(before)+50 {
		p := h.page(eventsPath("run", "") + "?" + q.Encode())
		if up = append(up, texts(p.Data)...); p.Next == nil {
			q.Del("page")
			q.Set("after_id", *p.LastID)
			continue
		}
		q.Del("after_id")
		q.Set("page", *p.Next)
	}
	close(stop)
	wg.Wait()
	all := ask{}.of(h.frames("run", ""))
	same(t, "upwards", up, all[:len(up)])
	got := slices.Concat(down...)
	if len(got) < len(before) {
		t.Fatalf("%d of %d events downwards", len(got), len(before))
	}
	slices.Reverse(got)
	same(t, "downwards", got, all[:len(got)])
}

// TestPagesAreBounded reads a session of which little is shown, and one whose events are large.
func TestPagesAreBounded(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.says(id, event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`))
	deltas := make([]schema.Event, 1000)
	for range 45 {
		for i := range deltas {
			deltas[i] = event(schema.TypeTextDelta, `{"text":"x"}`)
		}
		h.says(id, deltas...)
	}
	h.says(id, event(schema.TypeMessageEnd, `{"message_id":"m","content":[{"type":"text","text":"much"}]}`))
	for _, order := range []string{"asc", "desc"} {
		all := ask{desc: order == "desc"}.of(h.frames(id, ""))
		pages := h.walk(eventsPath(id, ""), url.Values{"order": {order}}, func() int { return 100 })
		same(t, order, slices.Concat(pages...), all)
		if len(pages) < 3 {
			t.Errorf("%s: %d records were looked at in %d pages", order, h.head(id).Last, len(pages))
		}
	}
}

// TestHistoryWithoutItsBeginning reads a session whose first records are no longer kept.
func TestHistoryWithoutItsBeginning(t *testing.T) {
	h := newHouse(t, false)
	h.fill("run", schematest.Generate(2000, 31), 10)
	h.log.Expire(key("run"), 900)
	h.do("GET", eventsPath("run", ""), "").refused(410, "invalid_request_error")
	kept := 0
	q := url.Values{"order": {"desc"}, "limit": {"50"}}
	for {
		a := h.do("GET", eventsPath("run", "")+"?"+q.Encode(), "")
		if a.Status == 410 {
			break
		}
		a.OK(200)
		p := h.page(eventsPath("run", "") + "?" + q.Encode())
		kept += len(p.Data)
		if p.Next == nil {
			t.Fatal("what is missing was not said")
		}
		q.Set("page", *p.Next)
	}
	if kept == 0 {
		t.Error("nothing of what is kept was given")
	}
}

// TestDefaults holds the sizes of pages that nobody asked for.
func TestDefaults(t *testing.T) {
	h := newHouse(t, false)
	h.fill("run", schematest.Generate(9000, 9), 50)
	if n := len(h.page(eventsPath("run", "")).Data); n != 20 {
		t.Errorf("%d events on a page of Qoder's", n)
	}
	for _, base := range []string{qoder.BaseV1, qoder.BaseDoubled} {
		if n := len(h.page(base + "/sessions/run/events?beta=true").Data); n != 1000 {
			t.Errorf("%d events on a page below %s", n, base)
		}
	}
	if n := len(h.page(eventsPath("run", "") + "?types[]=nothing.like.it").Data); n != 0 {
		t.Errorf("%d events of a type that is none", n)
	}
}

// TestStreamAndHistoryAgree compares what comes over the wire.
func TestStreamAndHistoryAgree(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(`{"agent":"a","environment_id":"e","incremental_streaming_enabled":true}`)
	h.do("POST", eventsPath(id, ""), `{"events":[{"type":"user.message","content":[{"type":"text","text":"hello"}]}]}`).OK(200)
	h.says(id,
		event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`),
		event(schema.TypeBlockStart, `{"index":0,"kind":"text"}`),
		event(schema.TypeTextDelta, `{"text":"hel","index":0}`), event(schema.TypeTextDelta, `{"text":"lo","index":0}`),
		event(schema.TypeBlockEnd, `{"index":0}`),
		event(schema.TypeMessageEnd, `{"message_id":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn"}`),
		event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`))
	h.do("POST", cloud+"/"+id+"/archive", "").OK(200) // the stream ends behind it
	streamed := h.streamed(cloud + "/" + id + "/events/stream")
	if len(streamed) < 10 {
		t.Fatalf("only %d frames were streamed", len(streamed))
	}
	same(t, "history", slices.Concat(h.walk(eventsPath(id, ""), url.Values{}, func() int { return 3 })...), streamed)
	same(t, "asked for as a stream", h.streamed(eventsPath(id, "")), streamed)
	main := h.threadsOf(id)[1]
	same(t, "thread", slices.Concat(h.walk(eventsPath(id, main), url.Values{}, func() int { return 3 })...),
		h.streamed(cloud+"/"+id+"/threads/"+main+"/stream"))
}

// streamed returns the data of all frames of a stream that ends.
func (h *house) streamed(path string) (all []string) {
	h.t.Helper()
	a := h.do("GET", path, "", "Accept", "text/event-stream")
	if a.Header.Get("Content-Type") != "text/event-stream" {
		h.t.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
	for line := range strings.SplitSeq(a.Body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			all = append(all, data)
		}
	}
	return all
}
