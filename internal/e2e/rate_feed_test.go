package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// The log of the rate proof.
const (
	rateRuns       = 1000
	ratePartitions = 8
	ratePack       = 20 // events of a pack, about
	rateTenant     = "acme"
)

// feed makes the packs of many runs, in turn, and publishes them.
type feed struct {
	t       testing.TB
	js      jetstream.JetStream
	writers []*persistertest.Writer
	at      int // packs made
	words   string
}

// newFeed declares the log and begins its runs.
func newFeed(t testing.TB, url string) *feed {
	t.Helper()
	nc, err := natskit.Dial(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: ratePartitions}); err != nil {
		t.Fatal(err)
	}
	f := &feed{t: t, js: js, words: "The quick brown fox jumps over the lazy dog and runs into the woods, where nobody has been. "}
	day := time.Now().UTC().Format("20060102")
	for i := range rateRuns {
		f.writers = append(f.writers, persistertest.NewWriter(schema.RunKey{Tenant: rateTenant,
			Run: fmt.Sprintf("run_%04d", i)}, day))
	}
	return f
}

// next makes the next pack: what a model says, with a message that ends and another that begins now
// and then.
func (f *feed) next() schema.Pack {
	w := f.writers[f.at%len(f.writers)]
	turn := f.at / len(f.writers)
	f.at++
	var events []schema.Event
	switch {
	case turn == 0:
		events = append(events, persistertest.Lifecycle(schema.StateRunning))
		fallthrough
	case turn%25 == 0:
		if turn > 0 {
			events = append(events, persistertest.Event(schema.TypeMessageEnd,
				`{"message_id":"m","stop_reason":"end_turn","usage":{"input_tokens":1200,"output_tokens":500}}`))
		}
		events = append(events, persistertest.Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`))
	}
	for i := 0; len(events) < ratePack-2+turn%5; i++ {
		events = append(events, persistertest.Event(schema.TypeTextDelta,
			fmt.Sprintf(`{"text":"%s%d","index":0}`, f.words[(i+turn)%40:], i)))
	}
	return w.Pack("", events...)
}

// publish makes and publishes packs until there are about n events, and returns them. pace, when it is
// not zero, is how many events a second are published at most. It returns when all are stored.
func (f *feed) publish(n int, pace float64) (packs []schema.Pack, events int, size int64) {
	f.t.Helper()
	began := time.Now()
	var last []jetstream.PubAckFuture
	for events < n {
		if pace > 0 {
			if early := time.Duration(float64(events)/pace*float64(time.Second)) - time.Since(began); early > 2*time.Millisecond {
				<-time.After(early)
			}
		}
		p := f.next()
		ack, err := f.js.PublishMsgAsync(&nats.Msg{Subject: schema.Subject(p.Key, "", ratePartitions),
			Header: p.Headers(), Data: p.Body},
			jetstream.WithStallWait(time.Minute))
		if err != nil {
			f.t.Fatal(err)
		}
		last = append(last, ack)
		packs = append(packs, p)
		events += p.Count
		size += int64(len(p.Body))
		if len(last) == 1024 {
			f.settle(last)
			last = last[:0]
		}
	}
	f.settle(last)
	return packs, events, size
}

// settle waits until all are stored.
func (f *feed) settle(acks []jetstream.PubAckFuture) {
	f.t.Helper()
	limit := time.After(time.Minute)
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			f.t.Fatal(err)
		case <-limit:
			f.t.Fatal("the log does not answer")
		}
	}
}

// rateRow is a row as both stores' tables have it.
type rateRow struct {
	run           string
	day           time.Time
	seq           int64
	id, typ       string
	ts            time.Time
	line, payload string
}

// rowsOf takes packs apart, by partition and in order.
func rowsOf(t testing.TB, packs []schema.Pack) (parts [ratePartitions][]rateRow) {
	t.Helper()
	for i := range packs {
		p := &packs[i]
		day, err := time.Parse("20060102", p.Head.Day)
		if err != nil {
			t.Fatal(err)
		}
		part := schema.Partition(p.Key.Run, ratePartitions)
		for text := range schema.Lines(p.Body) {
			e, err := schema.DecodeLine(text)
			if err != nil {
				t.Fatal(err)
			}
			ts, err := time.Parse(time.RFC3339, e.TS)
			if err != nil {
				t.Fatal(err)
			}
			parts[part] = append(parts[part], rateRow{p.Key.Run, day, int64(e.Seq), e.ID, e.Type, ts, string(text),
				string(e.Payload)})
		}
	}
	return parts
}

// batchesOf cuts rows into transactions of so many, the partitions in turn.
func batchesOf(parts [ratePartitions][]rateRow, size int) (out [][]rateRow) {
	for left := true; left; {
		left = false
		for i, rows := range parts {
			if len(rows) == 0 {
				continue
			}
			n := min(size, len(rows))
			out, parts[i], left = append(out, rows[:n]), rows[n:], true
		}
	}
	return out
}
