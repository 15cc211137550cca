package state

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// counter is a dialect whose projector counts, and calls back for each record.
type counter struct {
	dialect.Dialect
	fed func()
}

func (c counter) Info() dialect.Info                          { return dialect.Info{Name: "counter"} }
func (c counter) Projector(dialect.Request) dialect.Projector { return &counted{fed: c.fed} }

type counted struct {
	n   int
	fed func()
}

func (p *counted) For(dialect.Request) dialect.Stateful { q := *p; return &q }
func (p *counted) Size() int                            { return 64 }
func (p *counted) Admit(dialect.Request) error          { return nil }
func (p *counted) Project(*dialect.Frames, schema.Record) error {
	p.n++
	p.fed()
	return nil
}

// countedRun returns checkpoints over a run of so many events, in packs of a thousand, and its log. The hub
// keeps pages bytes of it, none for -1.
func countedRun(t *testing.T, events, pages int) (*Cache, schema.RunKey, *memory.Log) {
	t.Helper()
	log, key := memory.New(), schema.RunKey{Tenant: "acme", Run: "run"}
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log, CacheBytes: pages})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < events; from += 1000 {
		batch := make([]schema.Event, 1000)
		for i := range batch {
			batch[i] = schema.Event{Type: schema.TypeProgress, Payload: fmt.Appendf(nil, `{"done":%d}`, from+i)}
			if err := batch[i].Prepare(key.Run); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := app.Append(t.Context(), key, batch, producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return New(&runs.Runs{Hub: hub}, 1<<20, 64<<20), key, log
}

// TestCheckpointsGoOn reads a run that is longer than a request may take: what was read for one that gave up is not
// read again, or nobody would ever get to its end.
func TestCheckpointsGoOn(t *testing.T) {
	const events, patience = 12_000, 2500
	ts, key, _ := countedRun(t, events, -1)
	read, left, over := 0, 0, func() {}
	d := counter{fed: func() {
		read++
		if left--; left == 0 {
			over()
		}
	}}
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		left, over = patience, cancel
		p, err := ts.Projector(ctx, key, d, events, dialect.Request{})
		cancel()
		if err == nil {
			if n := p.(*counted).n; n != events {
				t.Errorf("fed %d of %d", n, events)
			}
			break
		}
		if tries == 20 {
			t.Fatalf("after %d tries: %v, %d records were read", tries, err, read)
		}
	}
	if read > 2*events {
		t.Errorf("%d records were read for %d", read, events)
	}
	for _, through := range []schema.Seq{1, 700, 5000, events} {
		left = events
		if p, err := ts.Projector(t.Context(), key, d, through, dialect.Request{}); err != nil ||
			p.(*counted).n != int(through) {
			t.Errorf("up to %d: %v", through, err)
		}
	}
	if len(ts.all) != 1 || ts.idle.Weight() <= 0 || ts.idle.Len() != 1 ||
		ts.idle.Weight() != ts.all[readingKey{key, "counter"}].size {
		t.Errorf("%d runs, %d bytes, %d idle", len(ts.all), ts.idle.Weight(), ts.idle.Len())
	}
}

// TestOneBound: folds and projectors share one bound, and who reads a run for one does not wait for the other.
func TestOneBound(t *testing.T) {
	ts, key, _ := countedRun(t, 2000, -1)
	fold := func() error {
		return ts.Fold(t.Context(), key, 2000, func(f *Folded) error {
			_, err := f.snapshot()
			return err
		})
	}
	fed := 0
	d := counter{fed: func() {
		if fed++; fed == 1 {
			if err := fold(); err != nil {
				t.Error(err)
			}
		}
	}}
	ask := func() {
		if _, err := ts.Projector(t.Context(), key, d, 2000, dialect.Request{}); err != nil {
			t.Error(err)
		}
	}
	ask()
	if len(ts.all) != 2 || fed != 2000 {
		t.Fatalf("%d readings are kept, %d records were fed", len(ts.all), fed)
	}
	sum := 0
	for _, e := range ts.all {
		sum += e.size
	}
	if ts.idle.Weight() != sum || sum == 0 {
		t.Errorf("%d bytes are counted, %d kept", ts.idle.Weight(), sum)
	}
	ts.total = sum - 1
	ask()
	if len(ts.all) != 1 || ts.all[readingKey{key, "counter"}] == nil {
		t.Errorf("%d readings are kept, want the one used last", len(ts.all))
	}
	if err := fold(); err != nil || ts.idle.Weight() > ts.total {
		t.Errorf("%d bytes are kept, %d may: %v", ts.idle.Weight(), ts.total, err)
	}
}

// TestExpiredBehindACheckpoint: what follows a checkpoint is no longer kept, although the run was looked at a moment
// ago. The run is read again from what is kept; only what is before that has expired. The hub may hold pages of what
// has gone.
func TestExpiredBehindACheckpoint(t *testing.T) {
	for _, pages := range []int{-1, 1 << 20} {
		ts, key, log := countedRun(t, 6000, pages)
		d := counter{fed: func() {}}
		at := func(through schema.Seq) (int, error) {
			p, err := ts.Projector(t.Context(), key, d, through, dialect.Request{})
			if err != nil {
				return 0, err
			}
			return p.(*counted).n, nil
		}
		if n, err := at(10); n != 10 {
			t.Fatal(n, err)
		}
		log.Expire(key, 2000)
		if n, err := at(4000); n != 2000 || err != nil {
			t.Errorf("behind what has expired: fed %d, %v; want the 2000 that are kept", n, err)
		}
		if n, err := at(3500); n != 1500 || err != nil {
			t.Errorf("within what is kept: fed %d, %v", n, err)
		}
		if _, err := at(1500); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("within what has expired: %v", err)
		}
		log.Expire(key, 5000)
		if n, err := at(6000); n != 1000 || err != nil {
			t.Errorf("when more has expired: fed %d, %v", n, err)
		}
	}
}
