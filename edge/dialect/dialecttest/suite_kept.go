package dialecttest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/live"
	"agentstream/edge/runs"
	"agentstream/edge/state"
	"agentstream/edge/transport"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// kept is a log that streams can be read from, by what an edge reads them with.
type kept struct {
	records []schema.Record
	packs   []schema.Pack
	log     *memory.Log
	hub     *fanout.Hub
	live    *live.Live
}

// stateBytes is what a node keeps of one run, as edge.Config has it.
const stateBytes = 16 << 20

// store stores a scenario.
func (s *Suite) store(t *testing.T, log schematest.Scenario) *kept {
	t.Helper()
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: suiteRun}, log, 7)
	k := newKept(t)
	k.add(t, packs)
	k.packs = packs
	for i := range packs {
		for r, err := range packs[i].Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			k.records = append(k.records, r)
		}
	}
	return k
}

// newKept returns one without events.
func newKept(t *testing.T) *kept {
	t.Helper()
	k := &kept{log: memory.New()}
	var err error
	if k.hub, err = fanout.New(fanout.Config{Stream: k.log, Tail: k.log}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- k.hub.Run(ctx) }()
	rs := &runs.Runs{Hub: k.hub}
	k.live = live.New(live.Config{
		Runs: rs, State: state.New(rs, stateBytes, 4*stateBytes), KeepAlive: time.Millisecond, LogTimeout: time.Minute,
	})
	t.Cleanup(func() {
		k.live.Close()
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return k
}

func (k *kept) add(t *testing.T, packs []schema.Pack) {
	t.Helper()
	for i := range packs {
		head, err := k.log.Head(t.Context(), packs[i].Key, "")
		if err == nil {
			_, err = k.log.Append(t.Context(), &packs[i], head.Stored)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// frame is one that was shown.
type frame struct {
	Event, Data, Token string
	Lane               string
	Kind, Slot         int
	Again, Last        bool
}

// frameOf returns what a client sees of f.
func frameOf(f dialect.Frame) frame {
	return frame{string(f.Event), string(f.Data), string(f.Token), string(f.Lane), f.Kind, f.Slot, f.Again, f.Last}
}

// sink is a connection. One that takes ready frames is parked when it has everything.
type sink struct {
	mu     sync.Mutex
	frames []frame
	idle   func() bool // nil: it waits for more
	ready  bool
	waited bool
}

var (
	_ transport.Sink   = (*sink)(nil)
	_ transport.Direct = (*sink)(nil)
)

func (s *sink) Write(list []dialect.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range list {
		s.frames = append(s.frames, frameOf(f))
	}
	return nil
}

func (s *sink) Flush() (int64, error) { return 0, nil }

func (s *sink) KeepAlive() error {
	s.mu.Lock()
	s.waited = true
	s.mu.Unlock()
	if s.idle != nil && s.idle() {
		return errIdle
	}
	return nil
}

func (s *sink) CloseWith(transport.End) error { return nil }

// lines is the form of ready frames.
var lines = &transport.Encoding{Name: "suite", Append: func(dst []byte, f dialect.Frame) []byte {
	b, _ := json.Marshal(frameOf(f)) // it never fails
	return append(append(dst, b...), '\n')
}}

func (s *sink) Encoding() *transport.Encoding {
	if !s.ready {
		return nil
	}
	return lines
}

func (s *sink) TryWrite(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range schema.Lines(b) {
		var f frame
		if err := json.Unmarshal(line, &f); err != nil {
			return 0, err
		}
		s.frames = append(s.frames, f)
	}
	return len(b), nil
}

func (s *sink) Rest(b []byte) error                    { _, err := s.TryWrite(b); return err }
func (s *sink) TryKeepAlive() (rest []byte, err error) { return nil, nil }

// isIdle reports whether it was silent for a while.
func (s *sink) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waited
}

func (s *sink) got() []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.frames)
}

// stream is one that is being served.
type stream struct {
	sink
	life   *live.Life
	report *live.Report
	over   chan error
}

// EndOf has no words.
func (s *stream) EndOf(error) transport.End { return transport.End{} }

// Finish takes how the stream has ended.
func (s *stream) Finish(_ any, err error) {
	s.report.Release()
	s.over <- err
}

// serve opens a stream. When it is not parked it ends with what there is.
func (k *kept) serve(t *testing.T, bound *live.Bound, req dialect.Request, parked bool) *stream {
	t.Helper()
	s := &stream{over: make(chan error, 1)}
	s.life = live.NewLife(t.Context(), auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll})
	report := &live.Report{Release: func() {}, Ending: s}
	s.report = report
	req.Stream = bound.Name
	ss, err := k.live.Open(s.life, report, bound, req)
	if err != nil {
		ss.Close()
		report.Finish(nil, err)
		return s
	}
	s.ready = parked
	if !parked {
		// One that ends with its run, which is over, ends by itself: behind the last record there may be frames of no record.
		ends := bound.Mode.IsFinite() && ss.Pos.Ended
		s.idle = func() bool { return !ends && max(ss.After, report.Seq) >= ss.Pos.Last }
	}
	go func() {
		if err := ss.Serve(&s.sink); err != live.ErrParked { // it is handed over, never wrapped
			report.Finish(nil, err)
		}
	}()
	return s
}

// read returns all frames that a stream has by now.
func (c *client) read(req dialect.Request) []frame {
	c.t.Helper()
	s := c.kept.serve(c.t, c.bound, req, false)
	if err := <-s.over; !isFinished(err) {
		c.t.Fatalf("%s behind %+v: %v", c.bound.Name, req.Cursor, err)
	}
	return s.got()
}
