package live_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/protocols/sample"
	"agentstream/schema"
)

// metered is the sample, which counts how often frames are made of a record, and waits before the first of a stream.
type metered struct {
	sample.Dialect
	made *atomic.Int64
	gate chan struct{} // nil: nothing waits
}

func (d metered) Projector(req dialect.Request) dialect.Projector {
	return meteredProjector{d.Dialect.Projector(req).(sampleProjector), d}
}

type sampleProjector interface {
	dialect.Stateful
	dialect.Opener
}

type meteredProjector struct {
	sampleProjector
	of metered
}

func (p meteredProjector) For(req dialect.Request) dialect.Stateful {
	return meteredProjector{p.sampleProjector.For(req).(sampleProjector), p.of}
}

func (p meteredProjector) Project(out *dialect.Frames, r schema.Record) error {
	if out != nil {
		if p.of.gate != nil {
			<-p.of.gate
		}
		p.of.made.Add(1)
	}
	return p.sampleProjector.Project(out, r)
}

// serving makes a server speak the sample by another dialect.
func serving(d dialect.Dialect) func(*edge.Config) {
	return func(c *edge.Config) {
		p := sample.Protocol()
		p.Dialect = d
		c.Protocols = append(c.Protocols, p)
	}
}

// selections are what the sample's clients may ask for, by what the frames that they are shown contain.
var selections = map[string]string{"": "", "?only=sum": `"sum"`, "?only=type": `"type"`}

// showing returns those frames of a stream that one selection shows. Frames of no record are shown under each.
func showing(all []edgetest.Sampled, only string) (list []edgetest.Sampled) {
	for _, s := range all {
		if s.Id == "" || strings.Contains(s.Data, only) {
			list = append(list, s)
		}
	}
	return list
}

// watchers opens one stream for each selection, three times; the result reads them to their ends and holds each to what
// one that selects nothing got.
func watchers(t *testing.T, h *edgetest.House) (check func()) {
	t.Helper()
	type watcher struct {
		*edgetest.Feed
		only string
		got  []edgetest.Sampled
	}
	var all []*watcher
	for range 3 {
		for query, only := range selections {
			w := &watcher{Feed: h.Feed(t, "GET", "/sample/run/feed"+query, ""), only: only}
			w.got = append(w.got, w.Want(`hello {"after":0}`))
			all = append(all, w)
		}
	}
	return func() {
		var wg sync.WaitGroup
		for _, w := range all {
			wg.Go(func() {
				rest, err := restOfFeed(w.Feed)
				if w.got = append(w.got, rest...); err != io.EOF { // the end of a body is not wrapped
					t.Error(err)
				}
			})
		}
		wg.Wait()
		whole := slices.IndexFunc(all, func(w *watcher) bool { return w.only == "" })
		for _, w := range all {
			if want := showing(all[whole].got, w.only); len(want) < 3 || !slices.Equal(w.got, want) {
				t.Errorf("selected by %q: %d frames, want %d", w.only, len(w.got), len(want))
			}
		}
	}
}

// TestSelectedTogether: clients that are parked and differ in their selections alone cost one projection of each
// record.
func TestSelectedTogether(t *testing.T) {
	d := metered{made: new(atomic.Int64)}
	h := edgetest.NewHouse(t, serving(d))
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	check := watchers(t, h)
	edgetest.Eventually(t, "all are parked", func() bool { return h.Server.Census().Parked == 9 })
	before := d.made.Load()
	for range 50 {
		w.text(4)
		w.progress()
	}
	w.state("done")
	check()
	if n := d.made.Load() - before; n != 101 {
		t.Errorf("frames were made %d times of 101 records", n)
	}
}

// lastWord ends the sample's stream behind the first text, with a frame that only one selection shows.
type lastWord struct{ sample.Dialect }

func (d lastWord) Projector(req dialect.Request) dialect.Projector {
	return lastWordProjector{d.Dialect.Projector(req).(sampleProjector)}
}

type lastWordProjector struct{ sampleProjector }

func (p lastWordProjector) For(req dialect.Request) dialect.Stateful {
	return lastWordProjector{p.sampleProjector.For(req).(sampleProjector)}
}

func (p lastWordProjector) Project(out *dialect.Frames, r schema.Record) error {
	if err := p.sampleProjector.Project(out, r); err != nil || out == nil || len(out.List) < 2 {
		return err
	}
	out.List[len(out.List)-1].Last = true
	return nil
}

// TestHiddenLast: a frame that ends the stream ends it also for those who are not shown it, parked or not.
func TestHiddenLast(t *testing.T) {
	h := edgetest.NewHouse(t, serving(lastWord{}))
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	first := `sample {"seq":1,"type":"run.lifecycle","child":""}`
	typ, sum := `sample {"seq":2,"type":"text.delta","child":""}`, `sample {"seq":2,"sum":%d}`
	all, types, sums := h.Feed(t, "GET", "/sample/run/feed", ""), h.Feed(t, "GET", "/sample/run/feed?only=type",
		""), h.Feed(t, "GET", "/sample/run/feed?only=sum", "")
	edgetest.Eventually(t, "all are parked", func() bool { return h.Server.Census().Parked == 3 })
	w.text(4)
	w.progress()
	last, _ := sums.Next()
	if last.Name == "hello" {
		last, _ = sums.Next()
	}
	var n int
	if _, err := fmt.Sscanf(last.Data, `{"seq":2,"sum":%d}`, &n); err != nil {
		t.Fatalf("%v: %s", err, last.Data)
	}
	sum = fmt.Sprintf(sum, n)
	expectWholeFeed(sums)
	hello := `hello {"after":0}`
	expectWholeFeed(all, hello, first, typ, sum)
	expectWholeFeed(types, hello, first, typ)
	expectWholeFeed(h.Feed(t, "GET", "/sample/run/feed?only=type", ""), hello, first, typ)
	expectWholeFeed(h.Feed(t, "GET", "/sample/run/feed?only=sum", ""), hello, sum)
}

// TestReplayedTogether: clients that read history at the same time and differ in their selections alone cost one
// projection of each record.
func TestReplayedTogether(t *testing.T) {
	d := metered{made: new(atomic.Int64), gate: make(chan struct{})}
	h := edgetest.NewHouse(t, serving(d))
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	const texts = 1500
	for range texts {
		w.text(4)
		w.progress()
	}
	w.state("done")
	check := watchers(t, h)
	close(d.gate)
	check()
	n := d.made.Load()
	whole, _ := restOfFeed(h.Feed(t, "GET", "/sample/run/feed", ""))
	var wg sync.WaitGroup
	for i := range 18 {
		from := 1 + i*len(whole)/19
		for query, only := range selections {
			wg.Go(func() {
				got, err := restOfFeed(h.Feed(t, "GET", "/sample/run/feed"+query, "", "Last-Event-ID", whole[from].Id))
				if want := showing(whole[from+1:], only); err != io.EOF || !slices.Equal(got[1:], want) {
					// the end of a body is not wrapped
					t.Errorf("behind frame %d, selected by %q: %d frames, want %d: %v", from, only, len(got)-1, len(want), err)
				}
			})
		}
	}
	wg.Wait()
	const first = 512 // records that the first one may have begun with when it was alone
	if n < 2*texts+2 || n > 2*texts+2+first {
		t.Errorf("frames were made %d times of %d records", n, 2*texts+2)
	}
}
