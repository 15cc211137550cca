package retention_test

import (
	"testing"
	"time"

	"agentstream/persister/persistertest"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// TestFeedsAreTrimmed: what is old of a feed goes, in the tables and in the log, and the newest event stays. Other runs
// without an end stay whole, feeds under a hold as well, and times that are still to come keep nothing.
func TestFeedsAreTrimmed(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		begin := w.now
		key := func(tenant, run string) schema.RunKey { return schema.RunKey{Tenant: tenant, Run: run} }
		keys := []schema.RunKey{key("acme", "feed-account"), key("acme", "feed-message-00"), key("acme", "feed-other"),
			key("brief", "feed-memory"), key("held", "feed-memory")}
		packs := make(map[schema.RunKey][]schema.Pack)
		for _, k := range keys {
			wr := persistertest.NewWriter(k, begin.Format("20060102"))
			for _, day := range []int{0, 0, 10, 20} {
				if day == 10 && k.Tenant == "brief" {
					day = 4000 // a clock that is ahead
				}
				wr.At(begin.Add(days(day)))
				p := wr.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"a"}`),
					persistertest.Event(schema.TypeTextDelta, `{"text":"b"}`))
				packs[k] = append(packs[k], p)
			}
			w.append(packs[k]...)
		}
		w.logged(packs[keys[0]]...)
		if _, err := s.AddHold(t.Context(), key("held", ""), "case 7"); err != nil {
			t.Fatal(err)
		}
		want := func(trimmed, account, brief int) {
			t.Helper()
			if r := w.pass(); r.Trimmed != trimmed {
				t.Errorf("day %v: %d feeds trimmed, want %d", w.now.Sub(begin), r.Trimmed, trimmed)
			}
			w.wantEvents(keys[0], packs[keys[0]][account:]...)
			w.wantEvents(keys[1], packs[keys[1]][account:]...)
			w.wantEvents(keys[2], packs[keys[2]]...)
			w.wantEvents(keys[3], packs[keys[3]][brief:]...)
			w.wantEvents(keys[4], packs[keys[4]]...)
		}
		w.now = begin.Add(days(29))
		want(0, 0, 0)
		w.now = begin.Add(days(31))
		want(3, 2, 2)
		if h, err := w.log.Head(t.Context(), keys[0]); err != nil || h.Last != 8 {
			t.Errorf("the log's head is %+v, %v", h, err)
		}
		want(0, 2, 2)
		w.now = begin.Add(days(51) + time.Hour)
		r := w.pass()
		for _, k := range []schema.RunKey{keys[0], keys[3]} {
			place, err := s.Place(t.Context(), k)
			if err != nil || place.Expired != 7 || place.Floor != 7 || place.Last != 8 {
				t.Errorf("%s: %+v, %v, trimmed %d", k, place, err, r.Trimmed)
			}
		}
		w.policy.Feeds = retention.Never
		w.now = begin.Add(days(500))
		if r := w.pass(); r.Trimmed > 0 {
			t.Errorf("%d trimmed with never", r.Trimmed)
		}
	})
}
