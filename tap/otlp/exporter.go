package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"agentstream/persister"
	"agentstream/schema"
	"agentstream/tap"
)

// History has the events of a run, wherever they are kept. It is safe for concurrent use.
type History interface {
	// Packs walks the run's events with after < seq ≤ through, in order, as far as they are kept.
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
}

// Sender hands spans to a collector. It is safe for concurrent use.
type Sender interface {
	// Send returns when the collector has them. The error wraps ErrPermanent when the same spans will not be accepted
	// later either, and is a RejectedError when the collector has not accepted some of them.
	Send(ctx context.Context, spans *tracepb.TracesData) error
	// SendMetrics returns when the collector has them, or has not accepted them.
	SendMetrics(ctx context.Context, metrics *metricspb.MetricsData) error
	// Close ends the sender.
	Close() error
}

// ErrPermanent reports that a request will not be accepted, however often it is sent.
var ErrPermanent = errors.New("the collector does not accept it")

// RejectedError reports that a collector has accepted a request but for some of what it has. It must not be sent
// again.
type RejectedError struct {
	Count   int64
	Message string
}

func (e *RejectedError) Error() string { return fmt.Sprintf("%d rejected: %s", e.Count, e.Message) }

// Config configures an Exporter. Sender must be set.
type Config struct {
	Options
	Sender  Sender
	History History          // nil: spans that have begun before this process has no beginning
	Service string           // service.name; default agentstream
	Metrics bool             // metrics of requests to models, see Confirm
	Now     func() time.Time // of metrics; default time.Now
	Held    int              // bytes of runs that are remembered between two batches; default 64 MiB
}

// Exporter is the inside of a sink: it turns batches of events into spans. Use New.
//
// It remembers the runs that go on. A run that it does not know, because it was forgotten, or another process has had
// it, is read again from its beginning: the spans of what comes before the batch are not sent again, and those that
// are open are known.
type Exporter struct {
	cfg Config

	mu   sync.Mutex
	runs map[schema.RunKey]*runSlot // that no Write is at
	held int
	now  uint64 // counts batches

	uses    map[schema.RunKey]*runUses
	waiting int       // all of them
	metered time.Time // when metrics were sent last
}

type runSlot struct {
	tracer *tracer
	size   int
	used   uint64 // Exporter.now
}

var _ tap.Confirmer = (*Exporter)(nil)

// New returns an Exporter. It starts nothing.
func New(cfg Config) *Exporter {
	cfg.Service = cmp.Or(cfg.Service, "agentstream")
	cfg.Held = cmp.Or(cfg.Held, 64<<20)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Exporter{cfg: cfg, runs: map[schema.RunKey]*runSlot{}, uses: map[schema.RunKey]*runUses{}}
}

// Write implements tap.Receiver. Events that were sent already make nothing.
func (x *Exporter) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	of := map[schema.RunKey]*tracer{}
	defer func() { x.put(of) }()
	last := map[schema.RunKey]schema.Seq{}
	var order []*tracer
	for i := range batch {
		e := &batch[i]
		t := of[e.Run]
		if t == nil {
			t = x.get(e.Run)
			of[e.Run] = t
			order = append(order, t)
		}
		if err := x.read(ctx, t, e); err != nil {
			return nil, err
		}
		last[e.Run] = e.Seq
	}
	var spans []*tracepb.Span
	for _, t := range order {
		for _, m := range t.outThrough(last[t.key]) {
			spans = append(spans, m.span)
		}
	}
	refused, err := x.send(ctx, spans, batch)
	if err != nil {
		return nil, err
	}
	for _, t := range order {
		sent := t.outThrough(last[t.key])
		x.count(t.key, sent, last[t.key])
		t.out = slices.Clone(t.out[len(sent):])
	}
	return refused, nil
}

// outThrough returns what was made by records up to a seq.
func (t *tracer) outThrough(seq schema.Seq) []made {
	n, _ := slices.BinarySearchFunc(t.out, seq+1, func(m made, s schema.Seq) int { return cmp.Compare(m.seq, s) })
	return t.out[:n]
}

// read reads an event, after what comes before it and was not read yet. What was read is not read again: its spans
// were sent, or wait in the tracer.
func (x *Exporter) read(ctx context.Context, t *tracer, e *tap.Event) error {
	if e.Seq <= t.last {
		return nil
	}
	if e.Seq > t.last+1 {
		x.uncount(t.key, e.Seq)
		if err := x.catchUp(ctx, t, e.Seq-1); err != nil {
			return err
		}
	}
	r, err := schema.ScanLine(e.Line)
	if err != nil { // the log has it, and it is no event
		t.last = e.Seq
		return nil
	}
	t.next(r, e.TS)
	return nil
}

// catchUp reads from the history what was delivered before. Its spans are with the collector already.
func (x *Exporter) catchUp(ctx context.Context, t *tracer, through schema.Seq) error {
	if x.cfg.History == nil {
		return nil
	}
	for pack, err := range x.cfg.History.Packs(ctx, t.key, t.last, through) {
		if err != nil {
			return fmt.Errorf("otlp: %s after %d: %w", t.key, t.last, err)
		}
		for r, err := range pack.Records(t.last) {
			if err != nil || r.Seq > through {
				break
			}
			at, _ := r.Time() // zero where the line has none
			t.next(r, at)
		}
		t.out = nil
	}
	return nil
}

// Bounds of one request.
const (
	maxSpans = 1000
	maxBytes = 1 << 20
)

// send sends spans, in several requests where they are many.
func (x *Exporter) send(ctx context.Context, spans []*tracepb.Span, batch []tap.Event) ([]tap.Refusal, error) {
	var refused []tap.Refusal
	for len(spans) > 0 {
		n, size := 0, 0
		for n < min(len(spans), maxSpans) && (n == 0 || size < maxBytes) {
			size += proto.Size(spans[n])
			n++
		}
		err := x.cfg.Sender.Send(ctx, wrap(x.cfg.Service, spans[:n]))
		var rejected *RejectedError
		switch {
		case errors.As(err, &rejected): // it is not known which
			detail := "spans of a batch that ends with this event: " + err.Error()
			refused = append(refused, tap.Refusal{Event: len(batch) - 1, Detail: detail})
		case errors.Is(err, ErrPermanent) && len(batch) == 1:
			refused = append(refused, tap.Refusal{Event: 0, Detail: err.Error()})
		case errors.Is(err, ErrPermanent):
			return nil, fmt.Errorf("%w: %w", persister.ErrPoison, err)
		case err != nil:
			return nil, err
		}
		spans = spans[n:]
	}
	return refused, nil
}

// get takes a run out of what is remembered. Two Writes never have the same one.
func (x *Exporter) get(key schema.RunKey) *tracer {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.runs[key]
	if e == nil {
		return newTracer(key, x.cfg.Options)
	}
	delete(x.runs, key)
	x.held -= e.size
	return e.tracer
}

// put remembers runs. Of too many those are forgotten that have not had an event for longest.
func (x *Exporter) put(of map[schema.RunKey]*tracer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now++
	for key, t := range of {
		e := &runSlot{tracer: t, size: t.memory(), used: x.now}
		x.runs[key] = e
		x.held += e.size
	}
	if x.held <= x.cfg.Held {
		return
	}
	byUse := func(a, b schema.RunKey) int { return cmp.Compare(x.runs[a].used, x.runs[b].used) }
	for _, key := range slices.SortedFunc(maps.Keys(x.runs), byUse) {
		if x.held <= x.cfg.Held*3/4 {
			return
		}
		x.held -= x.runs[key].size
		delete(x.runs, key)
	}
}

// Close implements tap.Receiver.
func (x *Exporter) Close() error { return x.cfg.Sender.Close() }
