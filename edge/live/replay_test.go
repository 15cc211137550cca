package live_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestReplayWithTheOriginalTiming: ?speed= gives a stored run at its own pace, so many times faster,
// with long pauses cut short, and then goes on with what is live.
func TestReplayWithTheOriginalTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		h := edgetest.NewHouseOn(t, ln, ln.Client())
		w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
		pauses := []time.Duration{0, 400 * time.Millisecond, time.Second, 10 * time.Second, 0, 2 * time.Second}
		for i, p := range pauses {
			time.Sleep(p)
			w.add(schema.Event{Type: schema.TypeProgress, Payload: fmt.Appendf(nil, `{"done":%d}`, i)})
		}
		begun := time.Now()
		r := h.Watch(h.Client, "/v1/agent/runs/run/stream?speed=4&detail=full")
		f := edgetest.FrameReader{T: t, R: bufio.NewReader(r.B)}
		due := time.Duration(0)
		for i, p := range pauses {
			due += min(p, 2*time.Second) / 4
			s, ok := f.Next()
			if at := time.Since(begun); !ok || s.Seq != schema.Seq(i+1) || at != due {
				t.Fatalf("event %d came after %v, want %v: %s", i+1, at, due, s.Line)
			}
		}
		time.Sleep(time.Second)
		w.add(schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)})
		if s, ok := f.Next(); !ok || s.Seq != 7 || time.Since(begun) != due+time.Second {
			t.Fatalf("live: %v %s after %v", ok, s.Line, time.Since(begun))
		}
		if _, ok := f.Next(); ok {
			t.Fatal("something behind the end")
		}
	})
}

// TestTimedReplayIsPaced: in default detail a timed replay keeps the rate and loses nothing.
func TestTimedReplayIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		h := edgetest.NewHouseOn(t, ln, ln.Client())
		packs := h.Fill("run", schematest.ByName("long"), 20)
		begun := time.Now()
		r := h.Watch(h.Client, "/v1/agent/runs/run/stream?speed=2")
		f := edgetest.FrameReader{T: t, R: bufio.NewReader(r.B)}
		var list []edgetest.Shown
		var timed []seen
		for s, ok := f.Next(); ok; s, ok = f.Next() {
			list = append(list, s)
			timed = append(timed, seen{s, time.Since(begun)})
		}
		tiles(t, list, 0)
		equalTexts(t, "timed", saidBy(t, list), said(t, logged(t, packs)))
		if took := time.Since(begun); took < 5*time.Second {
			t.Errorf("2,000 events 7 ms apart took %v at double speed", took)
		}
		t.Logf("%d events in %v, %d delta events in the busiest second", len(list), time.Since(begun), busiest(timed))
	})
}

// TestSnapshotThenStream: a client that joins late gets one event that stands for all there was, and
// then what follows; with a cursor it just goes on.
func TestSnapshotThenStream(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, schematest.Generate(2000, 8), 9)
	half := len(packs) / 2
	h.Store(packs[:half])
	n := packs[half-1].Last()
	r := h.Watch(http.DefaultClient, "/v1/agent/runs/run/stream?snapshot=true&detail=full")
	f := edgetest.FrameReader{T: t, R: bufio.NewReader(r.B)}
	first, ok := f.Next()
	if !ok || first.Type != "run.snapshot" || first.Seq != n || first.First() != 1 || first.FrameID != n.String() ||
		first.ID != packs[half-1].Head.LastID {
		t.Fatalf("begins with %.300s", first.Line)
	}
	if a := h.Do("GET", "/v1/agent/runs/run/snapshot", ""); a.Status != 200 ||
		strings.TrimSpace(a.Body) != string(first.Payload) {
		t.Fatalf("GET …/snapshot: %d %.300s", a.Status, a.Body)
	}
	h.Store(packs[half:])
	list := []edgetest.Shown{first}
	for s, ok := f.Next(); ok; s, ok = f.Next() {
		list = append(list, s)
	}
	tiles(t, list, 0)
	// Folding what came on top of the snapshot is folding the whole run.
	fold, err := schema.ParseSnapshot(first.Payload)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list[1:] {
		fold.Add(&s.Event)
	}
	whole := new(schema.Fold)
	for _, e := range logged(t, packs) {
		whole.Add(&e)
	}
	if got, want := fold.AppendSnapshot(nil), whole.AppendSnapshot(nil); !bytes.Equal(got, want) {
		t.Errorf("snapshot and tail give\n%.500s\nwant\n%.500s", got, want)
	}
	rest := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream?snapshot=true&detail=full", "", "Last-Event-ID",
		n.String()).Events(t))
	tiles(t, rest, n)
	if len(rest) != len(list)-1 {
		t.Errorf("resumed: %d events, want %d", len(rest), len(list)-1)
	}
}
