package natsjs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/tap"
)

// TestThreeTaps: taps of different speed see each event once and in order. One is away while what it has not read
// leaves the log, and reads it from the archive.
func TestThreeTaps(t *testing.T) {
	w := newWorld(t, 20)
	store := w.archive()
	w.write(400)
	fast, slow, away := newRecord(), newRecord(), newRecord()
	slow.pause = 20 * time.Millisecond
	archived := func(c *tap.Config) { c.Archive = store }
	w.join(tap.Spec{Name: "fast"}, fast, archived)
	w.join(tap.Spec{Name: "slow"}, slow, archived)
	m := w.join(tap.Spec{Name: "away"}, away, archived)
	w.until(away, w.total)
	m.leave(t)
	w.write(400)
	for _, run := range w.runs[:10] { // they end while it is away
		p := run.Pack("", persistertest.Lifecycle(schema.StateDone))
		w.publish(p)
	}
	w.flush()
	w.until(fast, w.total)
	w.until(slow, w.total)
	w.persist(store)
	w.expire()
	w.runs = w.runs[10:]
	w.write(100)
	w.join(tap.Spec{Name: "away"}, away, archived)
	w.join(tap.Spec{Name: "late"}, newRecord(), archived)
	for _, r := range []*record{fast, slow, away} {
		w.until(r, w.total)
		if _, repeats, _ := r.have(); repeats > 0 {
			t.Errorf("%d events came twice, and nothing failed", repeats)
		}
	}
}

// TestNewTapReadsTheArchive: a tap from the beginning gets also what had left the log before it was made.
func TestNewTapReadsTheArchive(t *testing.T) {
	w := newWorld(t, 8)
	store := w.archive()
	w.write(80)
	w.persist(store)
	w.expire()
	w.write(40)
	all := newRecord()
	w.join(tap.Spec{Name: "all"}, all, func(c *tap.Config) { c.Archive = store })
	w.until(all, w.total)
	fresh := newRecord()
	m := w.join(tap.Spec{Name: "new", From: time.Now().Add(time.Minute)}, fresh, func(c *tap.Config) { c.Archive = store })
	before := w.total
	w.write(40)
	w.until(fresh, w.total-before)
	m.leave(t)
}

// TestGapWithoutArchive: a tap that cannot read what has left the log ends and says so.
func TestGapWithoutArchive(t *testing.T) {
	w := newWorld(t, 4)
	w.write(40)
	r := newRecord()
	m := w.join(tap.Spec{Name: "gap"}, r, nil)
	w.until(r, w.total)
	m.leave(t)
	w.write(40)
	w.expire()
	w.write(40)
	m = w.join(tap.Spec{Name: "gap"}, r, nil)
	err := <-m.ended
	m.ended <- err
	if !errors.Is(err, tap.ErrGap) {
		t.Errorf("%v, want ErrGap", err)
	}
}

// TestFilters: a tap of one tenant and some types gets these, and its place moves past all others.
func TestFilters(t *testing.T) {
	w := newWorld(t, 8)
	w.write(80)
	for _, run := range w.runs {
		w.publish(run.Pack("", persistertest.Lifecycle(schema.StateDone)))
	}
	w.flush()
	r := newRecord()
	w.join(tap.Spec{Name: "ends", Tenant: "tenant_1", Types: []string{"run.*"}}, r, nil)
	w.until(r, 4)
	p, err := Open(t.Context(), w.server.Conn)
	if err != nil {
		t.Fatal(err)
	}
	for {
		lag, err := p.Lag(t.Context(), w.server.JS, tap.Spec{Name: "ends", Tenant: "tenant_1"})
		if err != nil {
			t.Fatal(err)
		}
		if lag.Messages == 0 && lag.Moved > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestMembers: members share the partitions, and take over those of one that dies without a word.
func TestMembers(t *testing.T) {
	w := newWorld(t, 20)
	r := newRecord()
	spec := tap.Spec{Name: "many"}
	first := w.join(spec, r, nil)
	w.write(100)
	w.until(r, w.total)
	second := w.join(spec, r, nil)
	shared := func() bool {
		n := 0
		for _, s := range second.tap.Status() {
			if !s.Standby && !s.LastCommit.IsZero() {
				n++
			}
		}
		return n > 0
	}
	for deadline := time.Now().Add(time.Minute); !shared(); {
		if time.Now().After(deadline) {
			t.Fatal("the second member has no partition")
		}
		w.write(20)
		w.until(r, w.total)
	}
	first.nc.Close()
	begin := time.Now()
	w.write(100)
	w.until(r, w.total)
	t.Logf("took over within %v", time.Since(begin))
}

// TestKills: members die at any moment. Each event comes, those of a run in order.
func TestKills(t *testing.T) {
	w := newWorld(t, 20)
	r := newRecord()
	r.pause = 2 * time.Millisecond
	spec := tap.Spec{Name: "kills"}
	kept := w.join(spec, r, nil)
	for i := range 12 {
		m := w.join(spec, r, nil)
		w.write(60)
		time.Sleep(rand.N(150 * time.Millisecond))
		if i%2 == 0 {
			m.nc.Close()
		} else {
			m.leave(t)
		}
	}
	w.until(r, w.total)
	_ = kept
	_, repeats, _ := r.have()
	t.Logf("%d events, %d came twice", w.total, repeats)
}

// TestPoison: an event that the sink refuses is kept as a dead letter, and all others are delivered.
func TestPoison(t *testing.T) {
	for name, poison := range map[string]error{"refused": errors.New("not this one"),
		"divided": fmt.Errorf("bad data: %w", persister.ErrPoison)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			r := newRecord()
			r.refuse = func(e *tap.Event) error {
				if e.Run.Run == "run_2" && e.Seq == 7 {
					return poison
				}
				return nil
			}
			w.write(40)
			m := w.join(tap.Spec{Name: "poison"}, r, nil)
			w.until(r, w.total-1)
			m.leave(t)
			p, err := Open(t.Context(), w.server.Conn)
			if err != nil {
				t.Fatal(err)
			}
			letters, err := p.Letters(t.Context(), "poison")
			if err != nil || len(letters) != 1 || letters[0].Run != "run_2" || letters[0].Seq != 7 {
				t.Fatalf("%+v, %v", letters, err)
			}
			if e, ok := letters[0].Event(); !ok || e.Key() != "tenant_0/run_2/7" || e.ID == "" || e.TS.IsZero() {
				t.Errorf("%+v", e)
			}
			if err := p.Drop(t.Context(), "poison", letters[0].ID); err != nil {
				t.Fatal(err)
			}
			if letters, err = p.Letters(t.Context(), "poison"); err != nil || len(letters) > 0 {
				t.Errorf("%+v, %v", letters, err)
			}
		})
	}
}

// TestRemove: a tap that is removed ends, and nothing of it is left but the log.
func TestRemove(t *testing.T) {
	w := newWorld(t, 4)
	r := newRecord()
	m := w.join(tap.Spec{Name: "gone"}, r, nil)
	other := w.join(tap.Spec{Name: "gone_not"}, newRecord(), nil)
	w.write(20)
	w.until(r, w.total)
	p, err := Open(t.Context(), w.server.Conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Forget(t.Context(), w.server.JS, "gone"); err != nil {
		t.Fatal(err)
	}
	w.write(20)
	err = <-m.ended
	m.ended <- err
	if !errors.Is(err, ErrNoTap) {
		t.Errorf("%v, want ErrNoTap", err)
	}
	specs, err := p.List(t.Context())
	if err != nil || !slices.ContainsFunc(specs, func(s tap.Spec) bool { return s.Name == "gone_not" }) ||
		len(specs) != 1 {
		t.Errorf("%+v, %v", specs, err)
	}
	if err := p.Forget(t.Context(), w.server.JS, "gone"); !errors.Is(err, ErrNoTap) {
		t.Errorf("%v, want ErrNoTap", err)
	}
	other.leave(t)
	for i := range w.server.Partitions {
		s, err := w.server.JS.Stream(t.Context(), fmt.Sprint("AGENT_", i))
		if err != nil {
			t.Fatal(err)
		}
		for name := range s.ConsumerNames(t.Context()).Name() {
			if len(name) > 9 && name[:9] == "tap_gone_" && !slices.Contains([]byte(name[9:]), '_') {
				t.Errorf("consumer %s is left", name)
			}
		}
	}
}

// TestOutage: a sink that takes nothing for a while makes its tap wait, and gets everything afterwards.
func TestOutage(t *testing.T) {
	w := newWorld(t, 4)
	r := newRecord()
	until := time.Now().Add(2 * time.Second)
	r.fail = func([]tap.Event) error {
		if time.Now().Before(until) {
			return errors.New("away")
		}
		return nil
	}
	w.join(tap.Spec{Name: "waits"}, r, nil)
	w.write(100)
	w.until(r, w.total)
}
