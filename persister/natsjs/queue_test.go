package natsjs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fill stores n packs of one event in partition 0.
func fill(t testing.TB, s *testkit.Server, n int) {
	t.Helper()
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: runIn(0, s.Partitions)}, "20260228")
	for range n {
		p := w.Texts("", 1)
		publish(t, s, schema.Subject(p.Key, p.Child, s.Partitions), p.Headers(), p.Body)
	}
}

// runIn returns a run id that lies in a partition.
func runIn(partition, count int) string {
	for i := 0; ; i++ {
		if id := "run_" + strconv.Itoa(i); schema.Partition(id, count) == partition {
			return id
		}
	}
}

func publish(t testing.TB, s *testkit.Server, subject string, header map[string][]string, body []byte) {
	t.Helper()
	if _, err := s.JS.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: body}); err != nil {
		t.Fatal(err)
	}
}

func declare(t *testing.T, s *testkit.Server, partitions int) {
	t.Helper()
	if err := natskit.Declare(t.Context(), s.JS, natskit.Layout{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
}

// open returns the queue of partition 0, to be read from the beginning, and its offset there.
func open(t testing.TB, s *testkit.Server, cfg natsjs.Config) (*natsjs.Queue, persister.Offset) {
	t.Helper()
	q, err := natsjs.New(s.JS, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q, seek(t, q, persister.Offset{Stream: q.Stream()})
}

func seek(t testing.TB, q *natsjs.Queue, stored persister.Offset) persister.Offset {
	t.Helper()
	at, err := q.Seek(t.Context(), stored)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func fetch(t testing.TB, q *natsjs.Queue, limit persister.Limit) []persister.Message {
	t.Helper()
	msgs, err := q.Fetch(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

// behind is the offset after a message.
func behind(at persister.Offset, m persister.Message) persister.Offset {
	at.Position, at.StoredAt = m.Position, m.Stored
	return at
}

func positions(msgs []persister.Message) string {
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprint(&b, m.Position, " ")
	}
	return strings.TrimSpace(b.String())
}

var wide = persister.Limit{Messages: 1000, Bytes: 16 << 20}

// TestSeekAndFetch: messages come in order, once, from the offset of Seek, and the log keeps nothing about its readers.
func TestSeekAndFetch(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 10)
	q, at := open(t, s, natsjs.Config{Wait: 200 * time.Millisecond})
	if at.Position != 0 || at.Identity == "" || at.Stream != "AGENT_0" {
		t.Fatalf("begins at %+v", at)
	}
	first := fetch(t, q, persister.Limit{Messages: 4, Bytes: 16 << 20})
	if got := positions(first); got != "1 2 3 4" {
		t.Fatalf("positions %s", got)
	}
	m := first[0]
	p, err := schema.ParsePack(m.Subject, m.Header, m.Body, m.Position)
	if err != nil || p.Check() != nil || m.Stream != "AGENT_0" || time.Since(m.Stored) > time.Minute {
		t.Fatalf("message %+v: %v", m, err)
	}
	if got := positions(fetch(t, q, wide)); got != "5 6 7 8 9 10" {
		t.Fatalf("positions %s", got)
	}
	begin := time.Now()
	if got := fetch(t, q, wide); len(got) != 0 || time.Since(begin) < 200*time.Millisecond {
		t.Fatalf("an empty queue gave %d messages after %v", len(got), time.Since(begin))
	}
	again := seek(t, q, behind(at, first[2]))
	if got := positions(fetch(t, q, wide)); got != "4 5 6 7 8 9 10" || again != behind(at, first[2]) {
		t.Fatalf("behind 3 come %s, at %+v", got, again)
	}
	lag, err := q.Lag(t.Context(), again)
	if err != nil || lag.Messages != 7 || lag.Window != 72*time.Hour || !lag.Oldest.Equal(first[3].Stored) ||
		lag.Stream != "AGENT_0" || lag.Lost != 0 {
		t.Fatalf("lag %+v, %v; oldest must be %v", lag, err, first[3].Stored)
	}
	fill(t, s, 1)
	if got := positions(fetch(t, q, wide)); got != "11" {
		t.Fatalf("then come %s", got)
	}
	if n := consumers(t, s); n != 1 {
		t.Errorf("%d consumers after three seeks", n)
	}
}

func consumers(t *testing.T, s *testkit.Server) int {
	t.Helper()
	stream, err := s.JS.Stream(t.Context(), "AGENT_0")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Consumers
}

// TestTwoReaders: what one reads the other reads as well. The store decides which of them stores it.
func TestTwoReaders(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 20)
	cfg := natsjs.Config{Wait: 200 * time.Millisecond}
	a, _ := open(t, s, cfg)
	b, _ := open(t, s, cfg)
	for range 4 {
		x, y := fetch(t, a, persister.Limit{Messages: 5, Bytes: 1 << 20}), fetch(t, b,
			persister.Limit{Messages: 5, Bytes: 1 << 20})
		if len(x) != 5 || positions(x) != positions(y) {
			t.Fatalf("one has %s, the other %s", positions(x), positions(y))
		}
	}
}

// TestNoWait: with it a fetch hands out what there is, and returns at once when that is nothing.
func TestNoWait(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 3)
	q, _ := open(t, s, natsjs.Config{Wait: time.Hour})
	at := wide
	at.NoWait = true
	if got := positions(fetch(t, q, at)); got != "1 2 3" {
		t.Fatalf("positions %s", got)
	}
	if got := fetch(t, q, at); len(got) != 0 { // and does not wait
		t.Fatalf("an empty queue gave %d messages", len(got))
	}
}

// TestLargeMessages: a message that is larger than the limit is handed out, alone.
func TestLargeMessages(t *testing.T) {
	s := testkit.NATS(t)
	subject := schema.Subject(schema.RunKey{Tenant: "acme", Run: runIn(0, s.Partitions)}, "", s.Partitions)
	large := bytes.Repeat([]byte("x"), int(s.Conn.MaxPayload())-200)
	for range 4 {
		publish(t, s, subject, map[string][]string{"A": {"b"}}, large)
	}
	q, _ := open(t, s, natsjs.Config{Wait: 200 * time.Millisecond})
	got := 0
	for range 8 {
		msgs := fetch(t, q, persister.Limit{Messages: 100, Bytes: 1000})
		if len(msgs) > 1 {
			t.Fatalf("%d messages of 1 MiB where 1,000 bytes were asked for", len(msgs))
		}
		for _, m := range msgs {
			if !bytes.Equal(m.Body, large) {
				t.Fatal("the body differs")
			}
			got++
		}
	}
	if got != 4 {
		t.Fatalf("%d of 4 came", got)
	}
}

// TestCancelledFetch: a fetch that is called off returns at once, and what was on its way is read again.
func TestCancelledFetch(t *testing.T) {
	s := testkit.NATS(t)
	q, at := open(t, s, natsjs.Config{Wait: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	subs := s.Conn.NumSubscriptions()
	go func() {
		_, err := q.Fetch(ctx, wide)
		done <- err
	}()
	for s.Conn.NumSubscriptions() == subs { // the request is out
		<-time.After(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	fill(t, s, 3)
	seek(t, q, at)
	if got := positions(fetch(t, q, wide)); got != "1 2 3" {
		t.Fatalf("then come %q", got)
	}
}

// TestGoneUnderOurFeet: what happens to the log while it is read is an error, and the next Seek returns where to
// continue.
func TestGoneUnderOurFeet(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, s *testkit.Server)
		then    string // positions that come after the fourth, after two more
		fails   bool   // a fetch
	}{
		"purged": {func(t *testing.T, s *testkit.Server) {
			stream, err := s.JS.Stream(t.Context(), "AGENT_0")
			if err == nil {
				err = stream.Purge(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "10 11", false},
		"consumers deleted": {func(t *testing.T, s *testkit.Server) {
			stream, err := s.JS.Stream(t.Context(), "AGENT_0")
			if err != nil {
				t.Fatal(err)
			}
			for name := range stream.ConsumerNames(t.Context()).Name() {
				if err := s.JS.DeleteConsumer(t.Context(), "AGENT_0", name); err != nil {
					t.Fatal(err)
				}
			}
		}, "5 6 7 8 9 10 11", true},
		"stream made anew": {func(t *testing.T, s *testkit.Server) {
			if err := s.JS.DeleteStream(t.Context(), "AGENT_0"); err != nil {
				t.Fatal(err)
			}
			declare(t, s, s.Partitions)
		}, "1 2", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.NATS(t)
			q, at := open(t, s, natsjs.Config{Wait: 300 * time.Millisecond})
			fill(t, s, 9)
			msgs := fetch(t, q, wide)
			if len(msgs) != 9 {
				t.Fatalf("%d messages", len(msgs))
			}
			c.happens(t, s)
			if _, err := q.Fetch(t.Context(), wide); (err != nil) != c.fails {
				t.Errorf("fetch: %v", err)
			}
			stored := behind(at, msgs[3])
			// As it is found: empty when it was made anew.
			next := seek(t, q, stored)
			if same := next.Identity == stored.Identity; same == (name == "stream made anew") {
				t.Errorf("goes on at %+v", next)
			}
			fill(t, s, 2)
			if got := positions(fetch(t, q, wide)); got != c.then {
				t.Errorf("then came %s, want %s", got, c.then)
			}
		})
	}
}

func TestQueues(t *testing.T) {
	s := testkit.NATS(t)
	queues, err := natsjs.Queues(t.Context(), s.JS, natsjs.Config{})
	if err != nil || len(queues) != s.Partitions {
		t.Fatalf("%d queues, %v", len(queues), err)
	}
	for p := range s.Partitions {
		if err := s.JS.DeleteStream(t.Context(), natskit.StreamName(p)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := natsjs.Queues(t.Context(), s.JS, natsjs.Config{}); !errors.Is(err, natskit.ErrNotDeclared) {
		t.Fatalf("without a log: %v", err)
	}
	if _, err := queues[0].Seek(t.Context(), persister.Offset{Stream: "AGENT_0"}); err == nil {
		t.Fatal("a stream that is gone answers")
	}
	if _, err := queues[0].Fetch(t.Context(), wide); err == nil {
		t.Fatal("fetched without a place")
	}
	if _, err := natsjs.New(s.JS, 0, natsjs.Config{Wait: -1}); err == nil {
		t.Fatal("a negative wait is taken")
	}
}

// TestInherited: a log that an older release has persisted goes on after what that has confirmed, and its consumer
// is removed when nobody asks it any more.
func TestInherited(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 10)
	c, err := s.JS.CreateOrUpdateConsumer(t.Context(), "AGENT_0", jetstream.ConsumerConfig{
		Durable: "persist", AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(6)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for m := range got.Messages() {
		if n++; n != 5 { // the fifth is not confirmed: it may not be stored
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	q, at := open(t, s, natsjs.Config{Wait: 200 * time.Millisecond})
	if at.Position != 4 {
		t.Fatalf("begins behind %d", at.Position)
	}
	if got := positions(fetch(t, q, wide)); got != "5 6 7 8 9 10" {
		t.Fatalf("positions %s", got)
	}
	for range 2 {
		if _, err := q.Lag(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.JS.Consumer(t.Context(), "AGENT_0", "persist"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Fatalf("the old consumer: %v", err)
	}
	if again := seek(t, q, at); again != at {
		t.Fatalf("then %+v, was %+v", again, at)
	}
}

// BenchmarkFetch is what reading costs: packs of one event.
func BenchmarkFetch(b *testing.B) {
	s := testkit.NATS(b)
	q, _ := open(b, s, natsjs.Config{})
	const n = 2000
	for b.Loop() {
		b.StopTimer()
		fill(b, s, n)
		b.StartTimer()
		for got := 0; got < n; {
			got += len(fetch(b, q, wide))
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
