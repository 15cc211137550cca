package live_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// partsOf returns the deltas of a bundle, or the event itself.
func partsOf(s edgetest.Shown, t testing.TB) []schema.Event {
	if s.Type != "delta.bundle" {
		return []schema.Event{s.Event}
	}
	var b struct {
		Deltas []struct {
			Type    string          `json:"type"`
			ChildID string          `json:"child_id"`
			Payload json.RawMessage `json:"payload"`
		} `json:"deltas"`
	}
	if err := json.Unmarshal(s.Payload, &b); err != nil {
		t.Fatal(err)
	}
	var list []schema.Event
	for _, d := range b.Deltas {
		list = append(list, schema.Event{Type: d.Type, ChildID: d.ChildID, Payload: d.Payload})
	}
	return list
}

func readFrames(t testing.TB, body string) (list []edgetest.Shown) {
	t.Helper()
	f := edgetest.FrameReader{T: t, R: bufio.NewReader(strings.NewReader(body))}
	for s, ok := f.Next(); ok; s, ok = f.Next() {
		list = append(list, s)
	}
	return list
}

// tiles holds that nothing is missing between two frames.
func tiles(t testing.TB, list []edgetest.Shown, after schema.Seq) {
	t.Helper()
	for _, s := range list {
		if s.First() != after+1 || s.FrameID != s.Seq.String() {
			t.Fatalf("behind %d comes %d to %d, id %s: %s", after, s.First(), s.Seq, s.FrameID, s.Line)
		}
		after = s.Seq
	}
}

// said joins the texts of each lane and kind.
func said(t testing.TB, events []schema.Event) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, e := range events {
		if _, text, _, ok := schema.SplitText(e.Payload); ok {
			var place struct {
				Index  json.RawMessage `json:"index"`
				CallID string          `json:"call_id"`
			}
			if err := json.Unmarshal(e.Payload, &place); err != nil {
				t.Fatal(err)
			}
			texts[fmt.Sprintf("%s %s %s %s", e.Type, e.ChildID, place.Index, place.CallID)] += string(text)
		}
	}
	return texts
}

func saidBy(t testing.TB, list []edgetest.Shown) map[string]string {
	var events []schema.Event
	for _, s := range list {
		events = append(events, partsOf(s, t)...)
	}
	return said(t, events)
}

func equalTexts(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	for k, w := range want {
		if got[k] != w {
			t.Fatalf("%s: %s: %d bytes %.80q, want %d bytes %.80q", what, k, len(got[k]), got[k], len(w), w)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d kinds of text, want %d", what, len(got), len(want))
	}
}

// logged decodes what packs hold.
func logged(t testing.TB, packs []schema.Pack) (events []schema.Event) {
	t.Helper()
	for i := range packs {
		for r, err := range packs[i].Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			e, err := r.Event()
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	}
	return events
}

// TestT3ResumeAnywhereInAShapedView: whatever event of the default view a client has seen last, it gets
// exactly the rest, and from every number of the log as well.
func TestT3ResumeAnywhereInAShapedView(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("run", schematest.Generate(200, 4), 7)
	all := logged(t, packs)
	for _, query := range []string{"", "bundle=true"} {
		for after := range schema.Seq(len(all)) {
			rest := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?"+query, "", "Last-Event-ID", after.String()).Events(t))
			tiles(t, rest, after)
			equalTexts(t, fmt.Sprintf("%s after %d", query, after), saidBy(t, rest), said(t, all[after:]))
			if last := rest[len(rest)-1]; last.Seq != all[len(all)-1].Seq {
				t.Fatalf("after %d: ends at %d", after, last.Seq)
			}
		}
	}
}

// TestT5ChildrenInTheParentsStream: what the parent's stream says of one child is that child's own
// stream, event for event, in raw and in default detail, nested children too.
func TestT5ChildrenInTheParentsStream(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Catalog = edgetest.Family{} })
	packs := h.Fill("run", schematest.ByName("children"), 3)
	all := logged(t, packs)
	for _, child := range []string{schematest.ChildA, schematest.ChildB, schematest.Grandchild} {
		var want []schema.Event
		for _, e := range all {
			if e.ChildID == child {
				want = append(want, e)
			}
		}
		whole := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?detail=full", "").Events(t))
		whole = slices.DeleteFunc(whole, func(s edgetest.Shown) bool { return s.ChildID != child })
		filtered := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?detail=full&child="+child, "").Events(t))
		tiles(t, filtered, 0)
		filtered = slices.DeleteFunc(filtered, func(s edgetest.Shown) bool { return s.ChildID != child }) // the run's end
		own := readFrames(t, h.Do("GET", "/v1/agent/runs/"+child+"/stream?detail=full", "").Events(t))
		tiles(t, own, 0)
		if len(want) == 0 || len(own) != len(want) || len(whole) != len(want) || len(filtered) != len(want) {
			t.Fatalf("%s: own %d, in the parent's %d, filtered %d, want %d", child, len(own), len(whole), len(filtered),
				len(want))
		}
		for i, e := range want {
			o := own[i]
			if o.ID != e.ID || o.Type != e.Type || !bytes.Equal(o.Payload, e.Payload) || o.RunID != child ||
				o.ChildID != "" || o.Seq != schema.Seq(i+1) {
				t.Fatalf("%s: own event %d is %s, want %s", child, i+1, o.Line, e.AppendLine(nil))
			}
			if whole[i].ID != e.ID || filtered[i].ID != e.ID {
				t.Fatalf("%s: order in the parent's stream differs at %d", child, i)
			}
		}
		for after := range schema.Seq(len(want)) {
			for _, query := range []string{"", "detail=full"} {
				rest := readFrames(t, h.Do("GET", "/v1/agent/runs/"+child+"/stream?"+query, "", "Last-Event-ID",
					after.String()).Events(t))
				tiles(t, rest, after)
				equalTexts(t, child, saidBy(t, rest), said(t, bare(want[after:])))
			}
		}
		n := fmt.Sprint(len(want))
		if a := h.Do("GET", "/v1/agent/runs/"+child+"/stream", "", "Last-Event-ID", n); a.Status != http.StatusNoContent {
			t.Errorf("%s: behind its end: %d", child, a.Status)
		}
		h.Do("GET", "/v1/agent/runs/"+child+"/stream?after="+n+"0", "").Expect(t, 409, "CURSOR-AHEAD")
	}
	h.Do("GET", "/v1/agent/runs/run_nobody/stream", "").Expect(t, 404, "NOT-FOUND")
	h.Do("GET", "/v1/agent/runs/"+schematest.ChildA+"/stream", "", edgetest.TenantHeader, "other").Expect(t, 404,
		"NOT-FOUND")
}

// bare takes the child off, as the child's own stream does.
func bare(events []schema.Event) []schema.Event {
	events = slices.Clone(events)
	for i := range events {
		events[i].ChildID = ""
	}
	return events
}

// TestWatchersShareAView: a live view is shaped once for all, and each watcher, wherever it joined, gets
// the same text without a hole.
func TestWatchersShareAView(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, schematest.Generate(3000, 5), 3)
	h.Store(packs[:1])
	const watchers = 12
	bodies := make(chan string, watchers)
	for i := range watchers {
		next := len(packs) / watchers * i
		if i > 0 {
			h.Store(packs[len(packs)/watchers*(i-1)+1 : next+1])
		}
		r := h.Watch(http.DefaultClient, "/v1/agent/runs/run/stream?bundle=true")
		go func() {
			b, err := io.ReadAll(r.B)
			if err != nil {
				t.Errorf("watcher %d: %v", i, err)
			}
			bodies <- string(b)
		}()
	}
	h.Store(packs[len(packs)/watchers*(watchers-1)+1:])
	want := said(t, logged(t, packs))
	for range watchers {
		list := readFrames(t, <-bodies)
		tiles(t, list, 0)
		equalTexts(t, "watcher", saidBy(t, list), want)
	}
}

// TestEightTypes: a client that knows the published types alone gets those, and first_seq covers the
// rest.
func TestEightTypes(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("run", schematest.Generate(600, 9), 6)
	known := map[string]bool{}
	for _, info := range schema.Types() {
		known[info.Name] = info.Native
	}
	var want []schema.Event
	for _, e := range logged(t, packs) {
		if known[e.Type] {
			want = append(want, e)
		}
	}
	for _, query := range []string{"types=native", "types=native&detail=full"} {
		list := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?"+query, "").Events(t))
		tiles(t, list, 0)
		for _, s := range list {
			if !known[s.Type] {
				t.Fatalf("%s: %s", query, s.Line)
			}
		}
		equalTexts(t, query, saidBy(t, list), said(t, want))
	}
	all := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?detail=full&types=*", "").Events(t))
	if n := h.Last("run"); len(all) != int(n) {
		t.Errorf("types=* gives %d of %d", len(all), n)
	}
}
