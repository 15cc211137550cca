package dialecttest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// sound checks what every frame is.
func (c *client) sound(whole []frame) {
	c.t.Helper()
	tokens := map[string]bool{}
	for i, f := range whole {
		text := c.bound.Transport == dialect.GRPC || json.Valid([]byte(f.Data)) || slices.Contains(c.suite.Texts, f.Data)
		if !text || c.bound.Transport != dialect.GRPC && strings.ContainsAny(f.Data, "\r\n") {
			c.t.Errorf("frame %d is neither JSON nor a text of the protocol, on one line: %s", i, f.Data)
		}
		if f.Token == "" {
			continue
		}
		if tokens[f.Token] {
			c.t.Errorf("frame %d: token %s stands on two frames", i, f.Token)
		}
		tokens[f.Token] = true
		if at := c.open(f.Token).Cursor.Place; at.Seq > 0 && at.Slot != f.Slot {
			c.t.Errorf("frame %d: token %s is the place %+v of another frame", i, f.Token, at)
		}
	}
}

// checkResume checks that a client which has a frame, and all before it, gets exactly the rest. Before that it
// may be shown once more what is marked Again.
func (c *client) checkResume(whole []frame) {
	c.t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	newest, ok := c.stateful(dialect.Request{})
	if ok {
		c.feed(newest, c.kept.records)
	}
	for i, f := range whole {
		if f.Token == "" || f.Last || i >= 100 && i < len(whole)-100 && rnd.IntN(len(whole)) > 100 {
			continue
		}
		req := c.open(f.Token)
		if newest != nil && newest.Admit(req) != nil { // the protocol does not take cursors of such a run
			continue
		}
		got := c.read(req)
		got = got[min(len(got), c.opens):]
		for len(got) > 0 && got[0].Again && (got[0].Token == "" ||
			slices.ContainsFunc(whole[:i+1], func(f frame) bool { return f.Last && f.Token == got[0].Token })) {
			got = got[1:]
		}
		if want := whole[i+1:]; !same(got, want) {
			c.t.Fatalf("behind frame %d, %s: %s", i, f.Token, difference(got, want))
		}
	}
}

// checkSelection checks that a selection shows what it says of what its request is shown without it.
func (c *client) checkSelection(whole []frame) {
	c.t.Helper()
	if c.req.Select == nil {
		return
	}
	all := c.req
	all.Select = nil
	var want []frame
	everything := c.read(all)
	for i, f := range everything {
		if i < c.opens || c.req.Select.Match(&dialect.Frame{Lane: []byte(f.Lane), Kind: f.Kind, Slot: f.Slot}) {
			// those are of no record
			want = append(want, f)
		}
	}
	if !same(whole, want) {
		c.t.Fatalf("selected: %s", difference(whole, want))
	}
}

// checkProjection checks that the edge shows what the projector makes of the records, one after the other.
func (c *client) checkProjection(whole []frame) {
	c.t.Helper()
	if _, ok := c.stateful(c.req); !ok {
		return
	}
	p, _ := c.stateful(c.req)
	got := whole[c.opens:]
	if want := c.project(p, c.kept.records); !same(got, want) {
		c.t.Fatalf("of the projector: %s", difference(got, want))
	}
}

// project returns what a client is shown of what a projector makes of records.
func (c *client) project(p dialect.Projector, records []schema.Record) (list []frame) {
	c.t.Helper()
	var out dialect.Frames
	for _, r := range records {
		if err := p.Project(&out, r); err != nil {
			c.t.Fatalf("seq %d: %v", r.Seq, err)
		}
		for i := range out.List {
			if c.req.Select == nil || c.req.Select.Match(&out.List[i]) {
				list = append(list, frameOf(out.List[i]))
			}
			if out.List[i].Last {
				return list
			}
		}
		out.Reset()
	}
	return list
}

// opening counts the frames that the stream opens with, which are of no record.
func (c *client) opening() {
	p := c.suite.Dialect.Projector(c.req)
	var out dialect.Frames
	if o, ok := p.(dialect.Opener); ok && o.Open(&out, 0) == nil {
		c.opens = len(out.List)
	}
}

// checkSharing checks that those who are written to together, while the run goes on, get what each gets alone.
func (c *client) checkSharing(whole []frame) {
	c.t.Helper()
	packs := c.kept.packs
	// A stream may end with the run before what comes behind the end is there.
	if i := slices.IndexFunc(packs, func(p schema.Pack) bool { return p.Head.State.Final() }); i >= 0 &&
		i+1 < len(packs) && c.bound.Mode.IsFinite() {
		packs = packs[:i+1]
		short := *c
		short.kept = newKept(c.t)
		short.kept.add(c.t, packs)
		whole = short.read(c.req)
	}
	if !c.bound.Shared || c.isShaped() || len(packs) < 4 {
		return
	}
	k, half := newKept(c.t), len(packs)/2
	k.add(c.t, packs[:half])
	all := c.req
	all.Select = nil
	var streams []*stream
	for _, req := range []dialect.Request{c.req, all, c.req} {
		streams = append(streams, k.serve(c.t, c.bound, req, true))
	}
	for _, s := range streams {
		waitFor(c.t, func() bool { return s.isIdle() || k.live.Census().Parked == len(streams) || len(s.over) > 0 })
	}
	k.add(c.t, packs[half:])
	for _, i := range []int{0, 2} {
		waitFor(c.t, func() bool { return len(streams[i].got()) >= len(whole) })
		if got := streams[i].got(); !same(got, whole) {
			c.t.Errorf("shared: %s", difference(got, whole))
		}
	}
	for _, s := range streams {
		s.life.Stop(errIdle)
		<-s.over
	}
}

// waitFor polls; the deadline is far beyond what a loaded machine needs.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	again, deadline := time.NewTicker(100*time.Microsecond), time.After(time.Minute)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal("it never came")
		}
	}
}

// copies checks that a copy goes on like the original, also when it was fed in silence, and that neither disturbs the
// other; and that the state is as large as it says, and bounded.
func (c *client) copies() {
	c.t.Helper()
	p, ok := c.stateful(c.req)
	if !ok {
		return
	}
	records := c.kept.records
	for _, at := range []int{0, 1, len(records) / 3, len(records) / 2, len(records) - 1} {
		whole, _ := c.stateful(c.req)
		if before := c.project(whole, records[:at]); len(before) > 0 && before[len(before)-1].Last {
			continue // the stream is over
		}
		want := c.project(whole, records[at:])
		silent, _ := c.stateful(dialect.Request{})
		c.feed(silent, records[:at])
		first, other := silent.For(c.req), silent.For(dialect.Request{})
		c.feed(other, records[at:])             // what one does with its memory
		c.feed(other, records[:len(records)/2]) // is nothing to the others
		for i, got := range [][]frame{c.project(first, records[at:]), c.project(silent.For(c.req), records[at:])} {
			if !same(got, want) {
				c.t.Fatalf("copy %d at %d: %s", i, at, difference(got, want))
			}
		}
	}
	most := 0
	for _, r := range records {
		if err := p.Project(nil, r); err != nil {
			c.t.Fatal(err)
		}
		most = max(most, p.Size())
	}
	if most <= 0 || most > c.suite.State {
		c.t.Errorf("a state of %d bytes, at most %d are said", most, c.suite.State)
	}
	c.honest(p)
}

func (c *client) feed(p dialect.Projector, records []schema.Record) {
	c.t.Helper()
	for _, r := range records {
		if err := p.Project(nil, r); err != nil {
			c.t.Fatalf("seq %d: %v", r.Seq, err)
		}
	}
}

// honest checks that a projector holds no more than a few times what it says.
func (c *client) honest(one dialect.Stateful) {
	c.t.Helper()
	const several = 16
	held := make([]dialect.Stateful, several)
	before := heap()
	for i := range held {
		held[i], _ = c.stateful(dialect.Request{})
		c.feed(held[i], c.kept.records)
	}
	each := (heap() - before) / several
	if each > 4*one.Size()+8<<10 {
		c.t.Errorf("a state says %d bytes and holds %d", one.Size(), each)
	}
	runtime.KeepAlive(held)
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func same(a, b []frame) bool { return slices.Equal(a, b) || len(a)+len(b) == 0 }

// difference returns where two lists part.
func difference(got, want []frame) string {
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Sprintf("frame %d of %d is\n%+v, want\n%+v", i, len(got), got[i], want[i])
		}
	}
	return fmt.Sprintf("%d frames, want %d", len(got), len(want))
}
