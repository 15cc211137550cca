package otlp

import (
	"context"
	"iter"
	"sync"

	"agentstream/adapters/otlp"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// Bounds of one trace, and of what is remembered of all of them.
const (
	maxSpans = 10_000
	maxBytes = 32 << 20 // of spans as they are kept

	rememberedSpans = 1 << 20 // of all tenants, which share them
)

// traces remembers which spans the log has, so that a trace is not read again for each request. What is forgotten is
// read again.
type traces struct {
	mu     sync.Mutex
	known  map[schema.RunKey]*fair.Kept[*known]
	recent fair.Recent[*known]
}

// known is what is remembered of one trace.
type known struct {
	key schema.RunKey

	mu    sync.Mutex
	last  schema.Seq // everything up to here is remembered
	ids   map[string]struct{}
	bytes int
}

// newTraces returns one that remembers nothing.
func newTraces() *traces { return &traces{known: make(map[schema.RunKey]*fair.Kept[*known])} }

// get returns what is known of a trace.
func (t *traces) get(key schema.RunKey) *known {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.known[key]; at != nil {
		t.recent.Touch(at)
		return at.Value
	}
	k := &known{key: key, ids: make(map[string]struct{})}
	t.known[key] = t.recent.Push(key.Tenant, 1, k)
	return k
}

// trim counts what is known of a trace, and forgets what was not used for longest, of those who have most.
func (t *traces) trim(key schema.RunKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.known[key]; at != nil {
		k := at.Value
		k.mu.Lock()
		n := len(k.ids) + 1
		k.mu.Unlock()
		t.recent.Remove(at)
		t.known[key] = t.recent.Push(key.Tenant, n, k)
	}
	for {
		k, ok := t.recent.Over(rememberedSpans)
		if !ok {
			return
		}
		delete(t.known, k.key)
	}
}

// reader walks the records of a run with after < seq ≤ through.
type reader func(ctx context.Context, run string, after, through schema.Seq) iter.Seq2[schema.Record, error]

// packPlan decides which spans of a pack are new.
type packPlan struct {
	known   *known
	spans   []otlp.Kept
	read    reader
	refused map[string]int // why
}

// plan returns the events of the spans that the log, as it stands at head, does not have. A run that is over is opened
// again.
func (p *packPlan) plan(ctx context.Context, head schema.Head, _ []schema.Event) ([]schema.Event, error) {
	k := p.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.readOn(ctx, p.read, head.Last); err != nil {
		return nil, err
	}
	var events []schema.Event
	p.refused = make(map[string]int)
	bytes, here := k.bytes, make(map[string]struct{})
	for _, s := range p.spans {
		_, stored := k.ids[s.ID]
		_, twice := here[s.ID]
		switch {
		case stored || twice:
		case len(k.ids)+len(here) >= maxSpans:
			p.refused[whyMany]++
		case bytes+len(s.Payload) > maxBytes:
			p.refused[whyLarge]++
		default:
			here[s.ID] = struct{}{}
			bytes += len(s.Payload)
			events = append(events, schema.Event{Type: s.Type, Payload: s.Payload})
		}
	}
	if len(events) == 0 {
		return nil, errNothing
	}
	if !head.HasEvents() || head.State.Final() {
		events = append([]schema.Event{running()}, events...)
	}
	return events, nil
}

// running returns the event with which a run begins, or begins again.
func running() schema.Event {
	return schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)}
}

// readOn reads and remembers the spans up to a seq. It needs mu.
func (k *known) readOn(ctx context.Context, read reader, through schema.Seq) error {
	if through <= k.last {
		return nil
	}
	for r, err := range read(ctx, k.key.Run, k.last, through) {
		if err != nil {
			return err
		}
		payload := r.Payload()
		if id, ok := otlp.IDOf(string(r.Type), payload); ok {
			k.ids[id] = struct{}{}
			k.bytes += len(payload)
		}
		k.last = r.Seq
	}
	return nil
}
