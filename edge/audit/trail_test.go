package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// bench is a trail over a log that can be away, on a clock of its own.
type bench struct {
	*producers.Appender
	t     *testing.T
	log   *memory.Log
	trail *audit.Trail

	mu   sync.Mutex
	now  time.Time
	away error
	lost bool // the log takes what comes and does not say so
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, log: memory.New(), now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
	var err error
	if b.Appender, err = producers.NewAppender(producers.AppenderConfig{Log: b.log, Keys: &memory.Keys{}}); err != nil {
		t.Fatal(err)
	}
	b.trail = audit.New(audit.Config{Log: b, Now: func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now }})
	return b
}

// Append is that of the appender, unless the log is away.
func (b *bench) Append(ctx context.Context, key schema.RunKey, events []schema.Event,
	opt producers.AppendOptions) (producers.Receipt, error) {
	if b.away != nil {
		return producers.Receipt{}, b.away
	}
	r, err := b.Appender.Append(ctx, key, events, opt)
	if b.lost {
		return producers.Receipt{}, fmt.Errorf("no answer: %w", schema.ErrUnanswered)
	}
	return r, err
}

func (b *bench) pass(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); b.now = b.now.Add(d) }

// lines returns the feed of a tenant, but for its beginning.
func (b *bench) lines(tenant string) (all []audit.Line) {
	b.t.Helper()
	for p, err := range b.log.Packs(b.t.Context(), audit.FeedOf(tenant), 0, schema.MaxSeq) {
		if err != nil {
			b.t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				b.t.Fatal(err)
			}
			if string(r.Type) == schema.TypeSessionCreated {
				continue
			}
			var l audit.Line
			if err := json.Unmarshal(r.Payload(), &l); err != nil || string(r.Type) != audit.TypePrefix+string(l.Action) {
				b.t.Fatalf("%s %v", r.Line, err)
			}
			all = append(all, l)
		}
	}
	return all
}

var ann = auth.Caller{Tenant: "acme", Subject: "ann", Credential: "key:a", Scopes: auth.ScopeAll}

// A caller opens a run once an hour; other callers, runs and hours are lines of their own. Nothing is lost while the
// log is away.
func TestOpeningsAreOneAnHour(t *testing.T) {
	b := newBench(t)
	b.away = schema.ErrUnavailable
	ben := ann
	ben.Subject = "ben"
	for range 3 {
		b.trail.Open(ann, "run", "native")
		b.trail.Open(ann, "run", "qoder")
		b.trail.Open(ben, "run", "native")
		b.trail.Open(ann, "other", "native")
	}
	if err := b.trail.Flush(t.Context()); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("flush: %v", err)
	}
	b.away = nil
	b.pass(time.Hour)
	b.trail.Open(ann, "run", "native")
	for range 2 {
		if err := b.trail.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := fmt.Sprint(b.lines("acme"))
	want := fmt.Sprint([]audit.Line{audit.By(ann, audit.Opened, "run", "native"),
		audit.By(ben, audit.Opened, "run", "native"),
		audit.By(ann, audit.Opened, "other", "native"), audit.By(ann, audit.Opened, "run", "native")})
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A caller that floods refusals costs its tenant a line a minute, with their number; other tenants cost nothing.
func TestRefusalsAreCounted(t *testing.T) {
	b := newBench(t)
	for i := range 10_000 {
		b.trail.Refuse(ann, fmt.Sprint("run", i), "native", "GET /x", "forbidden")
		b.trail.Refuse(auth.Caller{Tenant: "acme", Subject: fmt.Sprint("caller", i)}, "run", "native", "GET /x", "forbidden")
	}
	if err := b.trail.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := b.lines("acme")
	sum := 0
	for _, l := range all {
		sum += l.Count
		if l.Caller == "ann" && (l.Count != 10_000 || l.Run != "") {
			t.Errorf("%+v", l)
		}
	}
	if len(all) > 300 || sum != 20_000 {
		t.Errorf("%d lines of %d refusals", len(all), sum)
	}
}

// More lines than a tenant may have waiting are merged into one, with their number: what is counted is what has
// happened.
func TestWaitingLinesAreBounded(t *testing.T) {
	b := newBench(t)
	b.away = schema.ErrUnavailable
	const runs = 5000
	for i := range runs {
		b.trail.Open(ann, fmt.Sprint("run", i), "native")
	}
	b.away = nil
	for range 2 {
		if err := b.trail.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sum := 0
	all := b.lines("acme")
	for _, l := range all {
		sum += max(1, l.Count)
	}
	if sum != runs || len(all) > 2000 {
		t.Errorf("%d lines of %d openings, want %d", len(all), sum, runs)
	}
}

// What is recorded has one line, however often it is repeated, and also when the log took it without an answer or was
// away.
func TestRecordsAreExactlyOnce(t *testing.T) {
	b := newBench(t)
	record := func(id string) error {
		return b.trail.Record(t.Context(), "acme", id, audit.By(ann, audit.Decided, id, "native"))
	}
	b.lost = true
	if err := record("a/1"); !errors.Is(err, schema.ErrUnanswered) {
		t.Error(err)
	}
	b.lost, b.away = false, schema.ErrUnavailable
	if err := record("a/2"); !errors.Is(err, schema.ErrUnavailable) {
		t.Error(err)
	}
	b.away = nil
	for _, id := range []string{"a/1", "a/3", "a/3"} {
		if err := record(id); err != nil {
			t.Error(err)
		}
	}
	if err := b.trail.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs := []string{}
	for _, l := range b.lines("acme") {
		runs = append(runs, l.Run)
	}
	if got := strings.Join(runs, " "); got != "a/1 a/3 a/2" {
		t.Errorf("lines of %s", got)
	}
}

// The feed of each tenant is its own, whatever the tenants are called.
func TestFeedsAreApart(t *testing.T) {
	long := strings.Repeat("x", schema.MaxTenantID)
	seen := map[schema.RunKey]string{}
	for _, tenant := range []string{"a", "A", "-", "_audit", "audit-a", long, long[1:], long[:63] + "y", long[:57],
		long[:58]} {
		key := audit.FeedOf(tenant)
		if err := key.Validate(); err != nil || !audit.IsReserved(key.Tenant) || audit.IsReserved(tenant) || seen[key] != "" {
			t.Errorf("%s: %v, %v, that of %q", tenant, key, err, seen[key])
		}
		seen[key] = tenant
		if audit.FeedOf(key.Tenant) != key {
			t.Errorf("who reads %v is in %v", key, audit.FeedOf(key.Tenant))
		}
	}
}

// Every command is a line but what a person says; no other type is one.
func TestActionOf(t *testing.T) {
	lines := []string{}
	for _, typ := range schema.Types() {
		if a := audit.ActionOf(typ.Name); a != "" {
			lines = append(lines, typ.Name+" "+string(a))
		}
	}
	want := "command.cancel cancelled,command.pause decided,command.resume decided,command.redirect decided,command.approve_plan decided," +
		"command.reject_plan decided,command.answer decided,session.archived archived,session.deleted deleted"
	if got := strings.Join(lines, ","); got != want {
		t.Error(got)
	}
}
