package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"agentstream/edge/auth"
	"agentstream/producers"
	"agentstream/schema"
)

// Appender is what keeps lines: a producers.Appender.
type Appender interface {
	Append(context.Context, schema.RunKey, []schema.Event, producers.AppendOptions) (producers.Receipt, error)
}

// Config sets a Trail up. Log is needed.
type Config struct {
	Log     Appender
	Every   time.Duration // how long openings and refusals wait to be written together; default 2 s
	Timeout time.Duration // for the log to take lines; default 15 s
	Now     func() time.Time
	Logger  *slog.Logger // nil discards
	// Written is called with how many lines the log has taken, and Failed with how many it has not, which are tried again.
	Written func(lines int)
	Failed  func(lines int)
}

// Bounds of a Trail.
const (
	maxOpened  = 1 << 16 // openings of the hour that are remembered; beyond them some are recorded again
	maxWaiting = 1024    // lines of a tenant that wait; beyond them they are merged
	maxRefused = 256     // kinds of refusals of a tenant that are counted apart
	batchLines = 256     // lines of one append
	refuseGap  = time.Minute
)

// Trail writes lines. Make it with New; Run writes what waits.
type Trail struct {
	cfg Config

	mu     sync.Mutex
	hour   int64 // in which opened were opened
	opened map[[16]byte]struct{}
	feeds  map[string]*feed // by tenant; those that have something to write or to remember
}

// feed is what is not written yet of a tenant.
type feed struct {
	waiting []schema.Event
	merged  int       // lines beyond maxWaiting
	since   time.Time // of the first of them
	refused map[refusal]*refusals
	batch   []schema.Event // that is under way, under one key: a repeat stores nothing twice
	key     string
}

// refusal is what refusals have in common that are counted together.
type refusal struct{ caller, credential, via, route, reason string }

type refusals struct {
	line    Line
	count   int       // since the line before
	first   time.Time // of these
	written time.Time // when the line before was
}

// New starts nothing.
func New(cfg Config) *Trail {
	cfg.Every = cmp.Or(cfg.Every, 2*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Trail{cfg: cfg, opened: map[[16]byte]struct{}{}, feeds: map[string]*feed{}}
}

// Open records that a caller reads a run, once an hour. It does not wait.
func (t *Trail) Open(c auth.Caller, run, via string) {
	if t == nil {
		return
	}
	sum := sha256.Sum256([]byte(c.Tenant + "\x00" + run + "\x00" + c.Credential + "\x00" + c.Subject))
	now := t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if hour := now.Unix() / 3600; hour != t.hour || len(t.opened) >= maxOpened {
		t.hour = hour
		clear(t.opened)
	}
	once := [16]byte(sum[:16])
	if _, again := t.opened[once]; again {
		return
	}
	t.opened[once] = struct{}{}
	t.line(c.Tenant, By(c, Opened, run, via), now)
}

// line adds a line to those that wait. The caller holds mu.
func (t *Trail) line(tenant string, l Line, now time.Time) {
	e, err := l.event(now)
	if err != nil {
		t.cfg.Logger.Error("audit: a line cannot be written", "tenant", tenant, "action", l.Action, "err", err)
		return
	}
	t.wait(tenant, e, now)
}

// wait adds a line's event to those that wait. The caller holds mu.
func (t *Trail) wait(tenant string, e schema.Event, now time.Time) {
	f := t.feed(tenant)
	if len(f.waiting) < maxWaiting {
		f.waiting = append(f.waiting, e)
		return
	}
	if f.merged == 0 {
		f.since = now
	}
	f.merged++
}

// feed returns that of a tenant. The caller holds mu.
func (t *Trail) feed(tenant string) *feed {
	f := t.feeds[tenant]
	if f == nil {
		f = &feed{refused: map[refusal]*refusals{}}
		t.feeds[tenant] = f
	}
	return f
}

// Refuse records that a caller may not do something. It does not wait. Refusals of one kind are a line a minute, with
// their number.
func (t *Trail) Refuse(c auth.Caller, run, via, route, reason string) {
	if t == nil || c.Tenant == "" {
		return
	}
	now := t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	f, l := t.feed(c.Tenant), By(c, Refused, run, via)
	l.Route, l.Reason = route, reason
	kind := refusal{l.Caller, l.Credential, via, route, reason}
	r := f.refused[kind]
	if r == nil && len(f.refused) >= maxRefused { // of whoever they are
		kind, l = refusal{}, Line{Action: Refused, Detail: "of several callers"}
		r = f.refused[kind]
	}
	if r == nil {
		r = &refusals{line: l}
		f.refused[kind] = r
	}
	if r.count == 0 {
		r.first, r.line.Run = now, run
	}
	if r.line.Run != run {
		r.line.Run = "" // of several
	}
	r.count++
}

// Record appends a line and returns when the log has it. id names what was done, within the tenant: a repeat has no
// second line; "" is none. After an error the line is kept, and tried again by Run.
func (t *Trail) Record(ctx context.Context, tenant, id string, l Line) error {
	if t == nil {
		return nil
	}
	now := t.cfg.Now()
	e, err := l.event(now)
	if err != nil {
		return err
	}
	if id == "" {
		id = rand.Text()
	}
	sum := sha256.Sum256([]byte(id))
	err = t.append(ctx, tenant, []schema.Event{e}, "audit-"+hex.EncodeToString(sum[:16]))
	if err == nil {
		return nil
	}
	t.cfg.Logger.Error("audit: a line is not in the log yet", "tenant", tenant, "line", string(e.Payload), "err", err)
	if errors.Is(err, schema.ErrUnanswered) { // it may be there: who repeats the action finds out
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wait(tenant, e, now)
	return err
}

// append writes lines to a tenant's feed, which begins like a session: nobody ends it for its silence.
func (t *Trail) append(ctx context.Context, tenant string, lines []schema.Event, key string) error {
	first := schema.Event{Type: schema.TypeSessionCreated, Payload: []byte(`{"title":"audit"}`)}
	err := first.Prepare(Run)
	if err == nil {
		_, err = t.cfg.Log.Append(ctx, FeedOf(tenant), lines,
			producers.AppendOptions{IdempotencyKey: key, First: []schema.Event{first},
				Within: t.cfg.Timeout})
	}
	count := t.cfg.Written
	if err != nil {
		err = fmt.Errorf("audit of %s: %w", tenant, err)
		count = t.cfg.Failed
	}
	if count != nil {
		count(len(lines))
	}
	return err
}

// Run writes what waits until ctx ends, and what is left then.
func (t *Trail) Run(ctx context.Context) {
	if t == nil {
		return
	}
	tick := time.NewTicker(t.cfg.Every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			t.flush(ctx, false)
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cfg.Timeout)
	defer cancel()
	t.flush(last, true)
}

// Flush writes what waits, also refusals whose minute is not over, and returns why that was not possible.
func (t *Trail) Flush(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.flush(ctx, true)
}

func (t *Trail) flush(ctx context.Context, all bool) (failed error) {
	for _, tenant := range t.collect(all) {
		for {
			batch, key := t.next(tenant)
			if len(batch) == 0 {
				break
			}
			if err := t.append(ctx, tenant, batch, key); err != nil {
				t.cfg.Logger.Warn("audit: lines wait for the log", "tenant", tenant, "err", err)
				failed = err
				break
			}
			t.forget(tenant)
		}
	}
	return failed
}

// collect makes lines of what was counted, and returns the tenants that have something to write.
func (t *Trail) collect(all bool) (tenants []string) {
	now := t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for tenant, f := range t.feeds {
		for kind, r := range f.refused {
			due := all || now.Sub(r.written) >= refuseGap
			switch {
			case due && r.count == 0:
				delete(f.refused, kind)
			case due && len(f.waiting) < maxWaiting:
				r.line.Count = r.count
				t.line(tenant, r.line, r.first)
				r.count, r.written = 0, now
			}
		}
		if f.merged > 0 && len(f.waiting) < maxWaiting {
			t.line(tenant, Line{Action: Merged, Count: f.merged}, f.since)
			f.merged = 0
		}
		switch {
		case len(f.waiting)+len(f.batch) > 0:
			tenants = append(tenants, tenant)
		case len(f.refused) == 0 && f.merged == 0:
			delete(t.feeds, tenant)
		}
	}
	return tenants
}

// next returns the lines that are to be written next, and their key: those whose append failed come again as they were.
func (t *Trail) next(tenant string) ([]schema.Event, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.feed(tenant)
	if len(f.batch) == 0 && len(f.waiting) > 0 {
		n := min(len(f.waiting), batchLines)
		f.batch, f.key = f.waiting[:n:n], "audit-batch-"+rand.Text()
		f.waiting = append([]schema.Event(nil), f.waiting[n:]...)
	}
	return f.batch, f.key
}

// forget lets go of the lines that are in the log.
func (t *Trail) forget(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feed(tenant).batch = nil
}

// ID returns a name for what an event did to a run, for Record.
func ID(key schema.RunKey, seq schema.Seq) string {
	return key.Run + "/" + strconv.FormatInt(int64(seq), 10)
}
