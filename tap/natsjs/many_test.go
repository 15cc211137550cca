package natsjs

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/persister"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/sqlite"
	"agentstream/schema"
	"agentstream/tap"
)

// sequence is a sink that holds each run to its order: an event is the next one of its run, or was there.
type sequence struct {
	pause time.Duration // for each batch

	mu      sync.Mutex
	through map[schema.RunKey]schema.Seq
	events  int
	repeats int
	fault   string
}

func newSequence(pause time.Duration) *sequence {
	return &sequence{pause: pause, through: make(map[schema.RunKey]schema.Seq)}
}

func (s *sequence) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	select {
	case <-time.After(s.pause):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		e := &batch[i]
		last := s.through[e.Run]
		switch {
		case e.Seq <= last:
			s.repeats++
			continue
		case e.Seq != last+1:
			s.fault = fmt.Sprintf("%s came after %d", e.Key(), last)
		}
		s.through[e.Run] = e.Seq
		s.events++
	}
	return nil, nil
}

func (s *sequence) Close() error { return nil }

// await waits until a sink has so many events.
func (s *sequence) await(t *testing.T, events int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		s.mu.Lock()
		have, fault := s.events, s.fault
		s.mu.Unlock()
		if fault != "" || have > events || time.Now().After(deadline) {
			t.Fatalf("%d events of %d: %s", have, events, fault)
		}
		if have == events {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// house is a log that is archived while it is written, and watched.
type house struct {
	*world
	archive  *sqlite.Store
	persists *persister.Persister
	pace     int // packs a second

	mu     sync.Mutex
	delays []time.Duration // from publishing a pack to its copy, since measure began
}

// sentHeader is when a pack was published, in nanoseconds.
const sentHeader = "Test-Sent"

func newHouse(t *testing.T, runs int) *house {
	h := &house{world: newWorld(t, runs)}
	h.archive = h.world.archive()
	queues, err := perjs.Queues(t.Context(), h.server.JS, perjs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h.persists, err = persister.New(persister.Config{Queues: queues, Store: h.archive, Alone: true,
		LagEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.persists.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	nc := h.server.Dial(t)
	_, err = nc.Subscribe(schema.LivePrefix+".>", func(m *nats.Msg) {
		sent, _ := strconv.ParseInt(m.Header.Get(sentHeader), 10, 64)
		h.mu.Lock()
		h.delays = append(h.delays, time.Since(time.Unix(0, sent)))
		h.mu.Unlock()
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// behind returns how many messages the persister has not stored.
func (h *house) behind() (n uint64) {
	for _, s := range h.persists.Status() {
		n += s.Lag.Messages
	}
	return n
}

// defaultPace is how many packs of five events are written in a second: what two processors do beside three taps, an
// archive and watchers in one process. AGENTSTREAM_TAP_PACE is another one.
const defaultPace = 1000

// measure writes packs at a pace, and logs the delay of watchers and the lag of the persister meanwhile.
func (h *house) measure(what string, packs int) {
	h.t.Helper()
	h.mu.Lock()
	h.delays = nil
	h.mu.Unlock()
	begin, behind := time.Now(), []uint64{}
	for i := range packs {
		if i%(h.pace/100) == 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(h.pace))))
			behind = append(behind, h.behind())
			if h.server.JS.PublishAsyncPending() > h.pace {
				h.flush()
			}
		}
		p := h.runs[i%len(h.runs)].Texts("", 5)
		header := nats.Header(p.Headers())
		header.Set(sentHeader, strconv.FormatInt(time.Now().UnixNano(), 10))
		subject := schema.Subject(p.Key, "", h.server.Partitions)
		if _, err := h.server.JS.PublishMsgAsync(&nats.Msg{Subject: subject, Header: header, Data: p.Body}); err != nil {
			h.t.Fatal(err)
		}
		h.total += p.Count
	}
	h.flush()
	took := time.Since(begin)
	h.mu.Lock()
	delays := slices.Sorted(slices.Values(h.delays))
	h.mu.Unlock()
	slices.Sort(behind)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	at := func(n int, percent int) int { return max(n*percent/100-1, 0) }
	h.t.Logf("%-14s %8d events in %6.1f s; watchers p50 %v, p99 %v; persister behind p50 %d, p99 %d messages; heap %d MiB",
		what, packs*5, took.Seconds(), delays[at(len(delays), 50)].Round(10*time.Microsecond),
		delays[at(len(delays), 99)].Round(10*time.Microsecond), behind[at(len(behind), 50)], behind[at(len(behind), 99)],
		m.HeapAlloc>>20)
}

// persisted waits until the archive has all.
func (h *house) persisted() {
	h.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		stored := uint64(0)
		for _, s := range h.persists.Status() {
			stored += s.Inserted
		}
		if stored == uint64(h.total) {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%d of %d events are stored", stored, h.total)
		}
	}
}

// setting reads a number from the environment, which is least or more.
func setting(t *testing.T, name string, without, least int) int {
	s := os.Getenv(name)
	if s == "" {
		return without
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least {
		t.Fatalf("%s=%q", name, s)
	}
	return n
}

// TestTapsOfManyEvents: three taps of different speed each see every event once and in order, although they are away
// while events are written, and one of them until these have left the log. What watchers and the persister feel is
// logged, with taps and without, in turns. AGENTSTREAM_TAP_EVENTS is how many events; make taps writes a million, in
// 200 s and more.
func TestTapsOfManyEvents(t *testing.T) {
	events := setting(t, "AGENTSTREAM_TAP_EVENTS", 20_000, 1000)
	h := newHouse(t, 200)
	h.pace = setting(t, "AGENTSTREAM_TAP_PACE", defaultPace, 100)
	part := events / 5 / 5 // packs of each of five parts
	sinks := map[string]*sequence{"fast": newSequence(0), "slow": newSequence(30 * time.Millisecond),
		"stopped": newSequence(time.Millisecond)}
	join := func(names ...string) (members []*member) {
		for _, name := range names {
			members = append(members, h.join(tap.Spec{Name: name}, sinks[name],
				func(c *tap.Config) { c.Archive = h.archive }))
		}
		return members
	}
	settle := func(members []*member, names ...string) {
		for _, name := range names {
			sinks[name].await(t, h.total)
		}
		for _, m := range members {
			m.leave(t)
		}
	}
	h.measure("without taps", part)
	all := []string{"fast", "slow", "stopped"}
	members := join(all...)
	settle(nil, all...)
	h.measure("three taps", part)
	settle(members, all...)
	h.measure("without taps", part)
	h.persisted()
	h.expire() // what the last part has written is in the archive alone
	members = join("fast", "slow")
	settle(nil, "fast", "slow")
	h.measure("two taps", part)
	h.persisted()
	h.expire()
	members = append(members, join("stopped")...)
	h.measure("one catches up", part)
	settle(members, all...)
	for name, s := range sinks {
		if len(s.through) != 200 || s.events != h.total || s.repeats > 0 {
			t.Errorf("%s: %d runs, %d events of %d, %d came twice, and nothing failed", name, len(s.through), s.events,
				h.total, s.repeats)
		}
	}
	t.Logf("%d events, each once and in order at each of three taps", h.total)
}
