package otlp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentstream/adapters/otlp"
	"agentstream/producers"
	"agentstream/schema"
)

// MarkType is the type of the event that begins a round: all spans before it, and after the last one, are translated
// now.
const MarkType = "custom.otel.settled"

// SettlerConfig is what a Settler needs. Log and Appender are required.
type SettlerConfig struct {
	Log      producers.Log
	Past     producers.Past // of events that have left the log's window; nil: they are gone
	Appender *producers.Appender
	Settle   time.Duration // as in Config
}

// Settler appends what the spans of a trace say. It is safe for concurrent use, also with those of other nodes.
type Settler struct{ cfg SettlerConfig }

// NewSettler returns a Settler. It starts nothing.
func NewSettler(cfg SettlerConfig) *Settler {
	if cfg.Settle == 0 {
		cfg.Settle = DefaultSettle
	}
	return &Settler{cfg}
}

// IsTrace reports whether a run is that of a trace, by its id.
func IsTrace(run string) bool { return strings.HasPrefix(run, otlp.RunPrefix) }

// ErrGone reports that a run has lost its beginning: what it says cannot be known any more.
var ErrGone = errors.New("the beginning of the run is no longer kept")

// Settle appends what is missing of a trace that is complete. next is when to ask again; zero: there is nothing to wait
// for.
func (s *Settler) Settle(ctx context.Context, key schema.RunKey) (next time.Time, err error) {
	t := &tale{s: s, key: key, translator: otlp.NewTranslator(key.Run)}
	for {
		if err := t.readOn(ctx); err != nil {
			return next, err
		}
		plan := t.planRest
		if len(t.events) == t.stored {
			if len(t.spans)+len(t.records) == 0 {
				return time.Time{}, nil
			}
			next = t.due()
			if time.Now().Before(next) {
				return next, nil
			}
			plan = t.planMark
		}
		opt := producers.AppendOptions{Whole: true, Plan: plan, Within: appendTime}
		_, err := s.cfg.Appender.Append(ctx, key, nil, opt)
		if err != nil && !errors.Is(err, errNothing) {
			return next, err
		}
	}
}

// appendTime bounds one append.
const appendTime = 15 * time.Second

// tale is the run of a trace as it was read.
type tale struct {
	s          *Settler
	key        schema.RunKey
	translator *otlp.Translator

	pos     uint64     // of the newest pack that was read
	last    schema.Seq // of the newest event
	spans   []*otlp.Span
	records []*otlp.Record
	whole   bool      // the root has come
	newest  time.Time // when the newest of them came

	mark   string         // the id of the newest mark
	events []schema.Event // what follows from it
	stored int            // how many of them are stored
}

// due returns when the trace is complete.
func (t *tale) due() time.Time {
	wait := t.s.cfg.Settle
	if !t.whole {
		wait *= RootlessTimes
	}
	return t.newest.Add(wait)
}

// readOn reads what comes after what was read.
func (t *tale) readOn(ctx context.Context) error {
	w := producers.Walk{Log: t.s.cfg.Log, Past: t.s.cfg.Past, Key: t.key, Pos: t.pos, Last: t.last}
	for p, err := range w.Packs(ctx) {
		if err != nil {
			return fmt.Errorf("otlp: read %s: %w", t.key, err)
		}
		if p.First > t.last+1 {
			return fmt.Errorf("otlp: %s up to %d: %w", t.key, p.First-1, ErrGone)
		}
		if err := t.see(&p); err != nil {
			return err
		}
	}
	t.pos = w.Pos
	return nil
}

// see reads the events of a pack.
func (t *tale) see(p *schema.Pack) error {
	for r, err := range p.Records(t.last) {
		if err != nil {
			return fmt.Errorf("otlp: read %s: %w", t.key, err)
		}
		t.last = r.Seq
		switch string(r.Type) {
		case otlp.Type:
			s := otlp.Parse(r.Payload())
			t.spans = append(t.spans, s)
			t.whole = t.whole || s.Parent == ""
			t.came(r)
		case otlp.LogType:
			t.records = append(t.records, otlp.ParseRecord(r.Payload()))
			t.came(r)
		case MarkType:
			id, _, _ := r.Envelope()
			t.turn(string(id))
		default:
			if t.mark != "" && r.Attribute("cause") == t.mark {
				t.stored++
			}
		}
	}
	return nil
}

// came notes when something came.
func (t *tale) came(r schema.Record) {
	if at, ok := r.Time(); ok {
		t.newest = at
	}
}

// turn translates the spans before a mark.
func (t *tale) turn(mark string) {
	t.mark, t.stored = mark, 0
	t.events = t.translator.Round(t.spans, t.records)
	for i := range t.events {
		t.events[i].Cause = mark
	}
	t.spans, t.records = nil, nil
}

// planMark plans a mark, where no event has come since the run was read.
func (t *tale) planMark(_ context.Context, head schema.Head, _ []schema.Event) ([]schema.Event, error) {
	if head.Last != t.last {
		return nil, errNothing
	}
	mark := schema.Event{Type: MarkType, Payload: fmt.Appendf(nil, `{"spans":%d,"logs":%d}`, len(t.spans), len(t.records))}
	return t.prepare(head, []schema.Event{mark})
}

// Bounds of a pack of what is translated.
const (
	roundEvents = 1000
	roundBytes  = 600 << 10
)

// planRest plans the next pack of a round.
func (t *tale) planRest(_ context.Context, head schema.Head, _ []schema.Event) ([]schema.Event, error) {
	if head.Last != t.last {
		return nil, errNothing
	}
	rest := t.events[t.stored:]
	n, size := 0, 0
	for n < len(rest) && n < roundEvents && rest[n].ChildID == rest[0].ChildID &&
		(n == 0 || size+rest[n].Size() <= roundBytes) {
		size += rest[n].Size()
		n++
	}
	return t.prepare(head, rest[:n])
}

// prepare returns events as they are appended to head. A run that is over is opened before.
func (t *tale) prepare(head schema.Head, events []schema.Event) ([]schema.Event, error) {
	out := make([]schema.Event, 0, len(events)+1)
	if head.State.Final() {
		if events[0].ChildID != "" { // one pack is of one lane
			events = nil
		}
		out = append(out, running())
	}
	out = append(out, events...)
	for i := range out {
		if err := out[i].Prepare(t.key.Run); err != nil {
			return nil, fmt.Errorf("otlp: event %d of %s: %w", t.stored+i, t.key, err)
		}
	}
	return out, nil
}
