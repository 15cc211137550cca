package live_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// once makes a server speak the sample with a conversation whose subscriptions are one stream.
func once(d metered, gather time.Duration) func(*edge.Config) {
	type asked struct {
		Do, ID, Only string
		After        schema.Seq
		At           string
	}
	tell := func(t *protocol.Talk, v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return t.Send(dialect.Frame{Data: data})
	}
	received := func(t *protocol.Talk, message []byte) error {
		var m asked
		if err := json.Unmarshal(message, &m); err != nil {
			return dialect.Refuse(dialect.ErrBadRequest, "not a message")
		}
		if m.Do == "unsubscribe" {
			at, ok := t.Unsubscribe(m.ID)
			return tell(t, map[string]any{"re": m.ID, "at": at, "ok": ok, "left": len(t.Subscriptions())})
		}
		in := dialect.Input{Stream: "once", Path: map[string]string{"run": "run"},
			Query: map[string][]string{"only": {m.Only}}}
		req, err := d.Open(in)
		if err != nil {
			return err
		}
		if req.Cursor.Seq = m.After; m.At != "" {
			if req.Cursor.Place, err = dialect.ParsePlace("run", m.At); err != nil {
				return err
			}
		}
		place, err := t.Subscribe(m.ID, req)
		if err != nil {
			return err
		}
		return tell(t, map[string]any{"re": m.ID, "at": place.After, "last": place.Last})
	}
	return func(c *edge.Config) {
		c.Protocols = append(c.Protocols, protocol.Protocol{Dialect: d, Conversations: []protocol.Conversation{{
			Stream: dialect.Stream{Name: "once", Pattern: "GET /once", Mode: dialect.ModeB, Shared: true,
				Subprotocols: []string{"once"}}, Needs: auth.ScopeRead,
			Subscriptions: protocol.MaxSubscriptions, Once: true, Gather: gather, Received: received,
			Ended: func(t *protocol.Talk, id string, err error) error {
				if err != nil {
					return err
				}
				return tell(t, map[string]any{"ended": id})
			},
		}}})
	}
}

// said is a message of that conversation: an answer, or a frame.
type onceSaid struct {
	Re, Ended string
	At, Last  schema.Seq
	OK        bool
	Left      int
	Seq       schema.Seq
	Type      string
	Sum       int
}

func (m onceSaid) kind() string {
	if m.Type != "" {
		return "type"
	}
	return "sum"
}

type onceClient struct {
	*edgetest.Talker
	got []onceSaid
}

func openOnce(h *edgetest.House) *onceClient {
	s, _, err := h.Dial("/once", "Sec-Websocket-Protocol", "once")
	if err != nil {
		h.T.Fatal(err)
	}
	return &onceClient{Talker: &edgetest.Talker{T: h.T, Socket: s}}
}

// hear reads on until a message is as it must be.
func (k *onceClient) hear(ok func(onceSaid) bool) onceSaid {
	k.T.Helper()
	for {
		var m onceSaid
		if err := json.Unmarshal([]byte(k.Next().Raw), &m); err != nil {
			k.T.Fatal(err)
		}
		if k.got = append(k.got, m); ok(m) {
			return m
		}
	}
}

func (k *onceClient) ask(format string, a ...any) onceSaid {
	k.T.Helper()
	k.Say(format, a...)
	return k.hear(func(m onceSaid) bool { return m.Re != "" })
}

// frames returns what was shown since some message.
func (k *onceClient) frames(since int) (list []string) {
	for _, m := range k.got[since:] {
		if m.Seq > 0 {
			list = append(list, fmt.Sprintf("%d%.1s", m.Seq, m.kind()))
		}
	}
	return list
}

// TestOnce: what several subscriptions show comes once, and is projected once; one that joins gets its own replay; one
// that leaves takes nothing from the others; all end with the run.
func TestOnce(t *testing.T) {
	d := metered{made: new(atomic.Int64)}
	h := edgetest.NewHouse(t, once(d, 0))
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	w.text(3)
	k := openOnce(h)
	seq := func(n schema.Seq) func(onceSaid) bool { return func(m onceSaid) bool { return m.Seq == n } }
	check := func(since int, want string) {
		t.Helper()
		if got := strings.Join(k.frames(since), " "); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	k.ask(`{"Do":"subscribe","ID":"types","Only":"type"}`)
	k.hear(seq(2))
	k.ask(`{"Do":"subscribe","ID":"sums","Only":"sum"}`)
	k.hear(seq(2))
	check(0, "1t 2t 2s")
	k.ask(`{"Do":"subscribe","ID":"all"}`)
	k.hear(seq(2))
	k.hear(seq(2))
	check(3, "2s 1t 2t 2s")
	for i := range protocol.MaxSubscriptions - 3 {
		k.ask(`{"Do":"subscribe","ID":"more%d","Only":"sum","After":2}`, i)
	}
	k.Say(`{"Do":"subscribe","ID":"too many"}`)
	k.hear(func(m onceSaid) bool { return m.Seq == 0 && m.Re == "" })
	edgetest.Eventually(t, "it is parked", func() bool { return h.Server.Census().Parked == 1 })
	since, made := len(k.got), d.made.Load()
	w.text(3)
	w.progress()
	k.hear(seq(4))
	check(since, "3t 3s 4t")
	if n := d.made.Load() - made; n != 2 {
		t.Errorf("frames of 2 records were made %d times", n)
	}
	since = len(k.got)
	if m := k.ask(`{"Do":"unsubscribe","ID":"all"}`); m.At != 4 || !m.OK || m.Left != protocol.MaxSubscriptions-1 {
		t.Fatalf("%+v", m)
	}
	if m := k.ask(`{"Do":"unsubscribe","ID":"types"}`); m.At != 4 || !m.OK {
		t.Fatalf("%+v", m)
	}
	w.progress()
	w.text(3)
	k.hear(seq(6))
	check(since, "6s")
	if m := k.ask(`{"Do":"subscribe","ID":"late","Only":"type","After":5}`); m.At != 5 || m.Last != 6 {
		t.Fatalf("%+v", m)
	}
	k.hear(seq(6))
	w.state("done")
	ended := map[string]bool{}
	k.hear(func(m onceSaid) bool {
		if m.Ended != "" {
			ended[m.Ended] = true
		}
		return len(ended) == protocol.MaxSubscriptions-1
	})
	check(since, "6s 6t 7t")
}

// TestOnceGathered: subscriptions that come together are replayed as one, from the place of each.
func TestOnceGathered(t *testing.T) {
	d := metered{made: new(atomic.Int64)}
	h := edgetest.NewHouse(t, once(d, 50*time.Millisecond))
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	for range 5 {
		w.text(3)
	}
	k := openOnce(h)
	k.Say(`{"Do":"subscribe","ID":"a","Only":"type","After":4}`)
	k.Say(`{"Do":"subscribe","ID":"b","Only":"sum"}`)
	k.Say(`{"Do":"subscribe","ID":"c","At":%q}`, dialect.Place{Seq: 5}.AppendID(nil, "run"))
	k.hear(func(m onceSaid) bool { return m.Seq == 6 && m.Sum > 0 })
	if got := strings.Join(k.frames(0), " "); got != "2s 3s 4s 5t 5s 6t 6s" {
		t.Fatal(got)
	}
	if n := d.made.Load(); n != 7 { // one of them to find the place
		t.Errorf("frames of 6 records were made %d times", n)
	}
}

// TestOnceWhileWritten: whatever comes and goes while the run goes on, each subscription gets everything in order, and
// nothing comes more often than its replays say.
func TestOnceWhileWritten(t *testing.T) {
	const events, steps = 600, 60
	h := edgetest.NewHouse(t, once(metered{made: new(atomic.Int64)}, 0))
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	var writes sync.WaitGroup
	writes.Go(func() {
		for range events / 2 {
			w.text(3)
			w.progress()
		}
	})
	k := openOnce(h)
	rnd := rand.New(rand.NewPCG(5, 6))
	type open struct {
		only     string
		at, from int        // in k.got, and in the run
		last     schema.Seq // that it has; 0: it is open
	}
	subs := map[string]*open{}
	var replays []onceSaid
	for i := range steps {
		id := fmt.Sprint("s", i)
		if i%3 == 2 {
			id = fmt.Sprint("s", rnd.IntN(i))
			if s := subs[id]; s != nil && s.last == 0 {
				m := k.ask(`{"Do":"unsubscribe","ID":%q}`, id)
				s.last = max(1, m.At)
			}
			continue
		}
		only := []string{"", "type", "sum"}[rnd.IntN(3)]
		after := 0
		if h.Last("run") > 4 {
			after = rnd.IntN(int(h.Last("run")))
		}
		m := k.ask(`{"Do":"subscribe","ID":%q,"Only":%q,"After":%d}`, id, only, after)
		subs[id] = &open{only: only, at: len(k.got), from: after}
		replays = append(replays, m)
	}
	writes.Wait()
	w.text(3)
	end := h.Last("run")
	k.ask(`{"Do":"subscribe","ID":"final","After":%d}`, end-1)
	k.hear(func(m onceSaid) bool { return m.Seq == end && m.Sum > 0 })
	edgetest.Eventually(t, "it is parked", func() bool { return h.Server.Census().Parked == 1 })
	times := map[string]int{}
	for _, f := range k.frames(0) {
		times[f]++
	}
	for f, n := range times {
		var at schema.Seq
		_, _ = fmt.Sscan(strings.TrimRight(f, "ts"), &at)
		most := 1
		for _, r := range replays {
			if at > r.At {
				most++
			}
		}
		if n > most {
			t.Errorf("%s came %d times, in at most %d replays", f, n, most)
		}
	}
	for id, s := range subs {
		last := s.last
		if last == 0 {
			last = end
		}
		var got []onceSaid
		next := schema.Seq(s.from)
		for _, m := range k.got[s.at:] {
			if m.Seq <= 0 || m.Seq > last || s.only != "" && m.kind() != s.only {
				continue
			}
			if m.Seq > next || len(got) > 0 && m.Seq == next && m.kind() == "sum" && got[len(got)-1].kind() == "type" {
				got, next = append(got, m), m.Seq
			}
		}
		var want int
		for n := schema.Seq(s.from) + 1; n <= last; n++ {
			text := n%2 == 0
			if s.only != "sum" {
				want++
			}
			if s.only != "type" && text {
				want++
			}
		}
		if len(got) != want || !slices.IsSortedFunc(got, func(a, b onceSaid) int { return int(a.Seq - b.Seq) }) {
			t.Errorf("%s of %q from %d to %d has %d frames, want %d", id, s.only, s.from, last, len(got), want)
		}
	}
}
