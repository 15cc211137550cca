package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"agentstream/schema"
	"agentstream/tap/stream"
)

// errEnough ends a follower whose receiver has what it wants.
var errEnough = errors.New("enough")

// reading is a client of a tenant's events: what it has, and where it is.
type reading struct {
	t      *testing.T
	log    *TenantLog
	query  schema.TapQuery
	count  map[string]int
	last   map[string]schema.Seq
	losses []schema.TapLoss
}

func newReading(t *testing.T, log *TenantLog, q schema.TapQuery) *reading {
	return &reading{t: t, log: log, query: q, count: map[string]int{}, last: map[string]schema.Seq{}}
}

// read goes on until it has so many events more, or until stop says so.
func (r *reading) read(events int) {
	r.t.Helper()
	begin := len(r.count) + r.repeats()
	r.until(func() bool { return len(r.count)+r.repeats()-begin >= events })
}

// distinct goes on until it has so many events in all.
func (r *reading) distinct(events int) {
	r.t.Helper()
	r.until(func() bool { return len(r.count) >= events })
}

func (r *reading) until(enough func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	err := r.log.Follow(ctx, r.query, func(records []schema.TapRecord) error {
		for i := range records {
			if records[i].Cursor == "" {
				return fmt.Errorf("a record without a cursor: %s", records[i].Line)
			}
			r.query.Cursor = records[i].Cursor
			if err := r.note(&records[i]); err != nil {
				return err
			}
			if enough() {
				return errEnough // the rest of the batch is for the next connection
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		r.t.Fatalf("%v, %d events are there", err, len(r.count))
	}
}

func (r *reading) note(rec *schema.TapRecord) error {
	switch rec.Type {
	case "":
		return nil
	case schema.TapGap:
		var l schema.TapLoss
		err := json.Unmarshal(rec.Line, &l)
		r.losses = append(r.losses, l)
		return err
	}
	e, err := schema.DecodeLine(rec.Line)
	if err != nil {
		return err
	}
	r.count[fmt.Sprint(e.RunID, "/", e.Seq)]++
	if r.count[fmt.Sprint(e.RunID, "/", e.Seq)] == 1 {
		if e.Seq < r.last[e.RunID] {
			return fmt.Errorf("%s: %d came after %d", e.RunID, e.Seq, r.last[e.RunID])
		}
		r.last[e.RunID] = e.Seq
	}
	return nil
}

// repeats is how many events came more than once.
func (r *reading) repeats() (n int) {
	for _, c := range r.count {
		n += c - 1
	}
	return n
}

// of is how many events of a tenant a world has written, when its runs took turns.
func (w *world) of(tenant string) (n int) {
	for _, run := range w.runs {
		if run.Key.Tenant == tenant {
			n += int(run.Head.Last)
		}
	}
	return n
}

func (w *world) follow(archive stream.Stored) *TenantLog {
	w.t.Helper()
	l, err := NewTenantLog(w.server.Dial(w.t), stream.Tenants{Archive: archive})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// A client is cut after any event, and goes on at another node: it gets exactly the rest, of its own tenant alone.
func TestTenantCuts(t *testing.T) {
	w := newWorld(t, 10)
	w.write(200)
	r := newReading(t, nil, schema.TapQuery{Tenant: "tenant_1"})
	for left := w.of("tenant_1"); left > 0; {
		r.log = w.follow(nil)
		n := min(left, 1+rand.IntN(97))
		r.read(n)
		left -= n
	}
	if len(r.count) != w.of("tenant_1") || r.repeats() != 0 || len(r.losses) != 0 {
		t.Fatalf("%d events of %d, %d repeats, %v", len(r.count), w.of("tenant_1"), r.repeats(), r.losses)
	}
	for key := range r.count {
		if strings.HasPrefix(key, "run_0/") {
			t.Fatal("another tenant's", key)
		}
	}
}

// Log and archive are one history: a client that begins after the window has passed has all events once, also when
// it is cut in the archive, and goes on in the log.
func TestTenantArchive(t *testing.T) {
	w := newWorld(t, 12)
	store := w.archive()
	w.write(120)
	w.persist(store)
	w.expire()
	w.write(60)
	w.persist(store)
	r := newReading(t, nil, schema.TapQuery{Tenant: "tenant_0"})
	for left := w.of("tenant_0"); left > 0; {
		r.log = w.follow(store)
		n := min(left, 1+rand.IntN(61))
		r.read(n)
		left -= n
	}
	if len(r.count) != w.of("tenant_0") || r.repeats() != 0 || len(r.losses) != 0 {
		t.Fatalf("%d events of %d, %d repeats, %v", len(r.count), w.of("tenant_0"), r.repeats(), r.losses)
	}
	// A client that was away for longer than the window loses nothing. What it had of a run that goes on may come
	// again.
	w.write(60)
	w.persist(store)
	w.expire()
	w.write(24)
	r.log = w.follow(store)
	r.distinct(w.of("tenant_0"))
	if len(r.losses) != 0 {
		t.Fatal(r.losses)
	}
}

// Without an archive the client is told that events are missing. What was never asked for is not.
func TestTenantGap(t *testing.T) {
	w := newWorld(t, 4)
	w.write(20)
	r := newReading(t, w.follow(nil), schema.TapQuery{Tenant: "tenant_0"})
	r.read(10)
	w.expire()
	w.write(8)
	r.read(20)
	if len(r.losses) == 0 || r.losses[0].Reason != schema.TapWindow || r.losses[0].Partition == nil {
		t.Fatal(r.losses)
	}
	late := newReading(t, w.follow(nil), schema.TapQuery{Tenant: "tenant_0"})
	late.read(20)
	if len(late.losses) != 0 {
		t.Fatal(late.losses)
	}
}

// What retention has removed is said, run by run.
func TestTenantExpired(t *testing.T) {
	w := newWorld(t, 2)
	store := w.archive()
	w.write(4)
	w.persist(store)
	w.expire()
	w.write(4)
	w.expire() // these were never stored
	w.write(2)
	w.persist(store)
	r := newReading(t, w.follow(store), schema.TapQuery{Tenant: "tenant_0"})
	r.read(15)
	if len(r.losses) != 1 || r.losses[0].First != 11 || r.losses[0].Last != 20 || r.losses[0].Reason != schema.TapExpired {
		t.Fatal(r.losses)
	}
}

func TestTenantBegins(t *testing.T) {
	w := newWorld(t, 4)
	w.write(8)
	l := w.follow(nil)
	fresh := newReading(t, l, schema.TapQuery{Tenant: "tenant_0", New: true, Types: []string{"text.*"}})
	fresh.read(0) // the place alone
	middle := time.Now().Add(50 * time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	w.write(8)
	fresh.read(20)
	since := newReading(t, l, schema.TapQuery{Tenant: "tenant_0", From: middle})
	since.read(20)
	for _, r := range []*reading{fresh, since} {
		if len(r.count) != 20 || r.repeats() != 0 || r.last["run_0"] != 20 {
			t.Errorf("%d events, %v", len(r.count), r.last)
		}
	}
	err := l.Follow(t.Context(), schema.TapQuery{Tenant: "tenant_0", Cursor: "AQAAAAEB"},
		func([]schema.TapRecord) error { return errEnough })
	if !errors.Is(err, schema.ErrBadCursor) {
		t.Error(err)
	}
}

// The place of a name is kept on the server, and never moves back.
func TestTenantPlaces(t *testing.T) {
	w := newWorld(t, 4)
	w.write(8)
	l := w.follow(nil)
	r := newReading(t, l, schema.TapQuery{Tenant: "tenant_0"})
	r.read(7)
	early := r.query.Cursor
	r.read(9)
	for _, cursor := range []string{r.query.Cursor, early} {
		if err := l.Keep(t.Context(), "tenant_0", "bill", cursor); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := l.Place(t.Context(), "tenant_0", "bill")
	if err != nil || kept != r.query.Cursor {
		t.Fatal(kept, err)
	}
	if other, err := l.Place(t.Context(), "tenant_1", "bill"); err != nil || other != "" {
		t.Fatal(other, err)
	}
	if err := l.Keep(t.Context(), "tenant_0", "bill", "rubbish"); !errors.Is(err, schema.ErrBadCursor) {
		t.Error(err)
	}
	for i := range maxTenantTaps - 1 {
		if err := l.Keep(t.Context(), "tenant_0", fmt.Sprint("t", i), early); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Keep(t.Context(), "tenant_0", "more", early); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	for _, want := range []bool{true, false} {
		if found, err := l.Forget(t.Context(), "tenant_0", "bill"); err != nil || found != want {
			t.Error(found, err)
		}
	}
}
