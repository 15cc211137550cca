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

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fill stores n packs of one event in partition 0 and gives the run's key.
func fill(t testing.TB, s *testkit.Server, n int) {
	t.Helper()
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: runIn(0, s.Partitions)}, "20260228")
	for range n {
		p := w.Texts("", 1)
		publish(t, s, schema.Subject(p.Key, p.Child, s.Partitions), p.Headers(), p.Body)
	}
}

// runIn gives a run id that lies in a partition.
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

func open(t testing.TB, s *testkit.Server, cfg natsjs.Config) *natsjs.Queue {
	t.Helper()
	q, err := natsjs.New(s.JS, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func fetch(t testing.TB, q *natsjs.Queue, limit persister.Limit) []persister.Message {
	t.Helper()
	msgs, err := q.Fetch(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

func positions(msgs []persister.Message) string {
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprint(&b, m.Position, " ")
	}
	return strings.TrimSpace(b.String())
}

var wide = persister.Limit{Messages: 1000, Bytes: 16 << 20}

func TestFetchAckRelease(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 10)
	q := open(t, s, natsjs.Config{Wait: 200 * time.Millisecond})
	first := fetch(t, q, persister.Limit{Messages: 4, Bytes: 16 << 20})
	if got := positions(first); got != "1 2 3 4" {
		t.Fatalf("positions %s", got)
	}
	m := first[0]
	p, err := schema.ParsePack(m.Subject, m.Header, m.Body, m.Position)
	if err != nil || p.Check() != nil || m.Stream != "AGENT_0" || time.Since(m.Stored) > time.Minute {
		t.Fatalf("message %+v: %v", m, err)
	}
	if err := q.Ack(t.Context(), first[:3]); err != nil {
		t.Fatal(err)
	}
	if got := positions(fetch(t, q, wide)); got != "5 6 7 8 9 10" {
		t.Fatalf("positions %s", got)
	}
	lag, err := q.Lag(t.Context())
	if err != nil || lag.Messages != 7 || lag.Window != 72*time.Hour || !lag.Oldest.Equal(first[3].Stored) || lag.Stream != "AGENT_0" {
		t.Fatalf("lag %+v, %v; oldest must be %v", lag, err, first[3].Stored)
	}
	if err := q.Release(t.Context(), first[3:]); err != nil {
		t.Fatal(err)
	}
	if got := positions(fetch(t, q, wide)); got != "4" {
		t.Fatalf("after the release: %s", got)
	}
	begin := time.Now()
	if got := fetch(t, q, wide); len(got) != 0 || time.Since(begin) < 200*time.Millisecond {
		t.Fatalf("an empty queue gave %d messages after %v", len(got), time.Since(begin))
	}
}

// TestNoWait: with it a fetch hands out what there is, and returns at once when that is nothing.
func TestNoWait(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 3)
	q := open(t, s, natsjs.Config{Wait: time.Minute})
	at := wide
	at.NoWait = true
	if got := positions(fetch(t, q, at)); got != "1 2 3" {
		t.Fatalf("positions %s", got)
	}
	begin := time.Now()
	if got := fetch(t, q, at); len(got) != 0 || time.Since(begin) > 10*time.Second {
		t.Fatalf("an empty queue gave %d messages after %v", len(got), time.Since(begin))
	}
}

// TestTwoFetchers is why the consumer is AckExplicit: what one confirms says nothing about what the
// other holds, and the other's messages come again when it dies.
func TestTwoFetchers(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 20)
	cfg := natsjs.Config{Wait: 100 * time.Millisecond, AckWait: 4 * time.Second}
	dies, lives := open(t, s, cfg), open(t, s, cfg)
	if got := positions(fetch(t, dies, persister.Limit{Messages: 5, Bytes: 1 << 20})); got != "1 2 3 4 5" {
		t.Fatalf("positions %s", got)
	}
	rest := fetch(t, lives, wide)
	if len(rest) != 15 {
		t.Fatalf("the other has %d", len(rest))
	}
	if err := lives.Ack(t.Context(), rest); err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint64]bool)
	for deadline := time.Now().Add(40 * time.Second); len(seen) < 5 && time.Now().Before(deadline); {
		for _, m := range fetch(t, lives, wide) {
			seen[m.Position] = true
		}
	}
	for pos := uint64(1); pos <= 5; pos++ {
		if !seen[pos] {
			t.Errorf("message %d is lost", pos)
		}
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
	q := open(t, s, natsjs.Config{Wait: 200 * time.Millisecond})
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
		if err := q.Ack(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
	}
	if got != 4 {
		t.Fatalf("%d of 4 came", got)
	}
}

// TestCancelledFetch: messages that arrive while a fetch is called off are not lost for the ack wait.
func TestCancelledFetch(t *testing.T) {
	s := testkit.NATS(t)
	q := open(t, s, natsjs.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := q.Fetch(ctx, wide)
		done <- err
	}()
	for s.Conn.NumSubscriptions() < 2 { // the request is out
		<-time.After(time.Millisecond)
	}
	begin := time.Now()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || time.Since(begin) > 4*time.Second {
		t.Fatalf("%v after %v", err, time.Since(begin))
	}
}

// TestConsumerDeleted: an operator's mistake costs a second look at the window, not a message.
func TestConsumerDeleted(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 3)
	q := open(t, s, natsjs.Config{Wait: 200 * time.Millisecond})
	if err := q.Ack(t.Context(), fetch(t, q, wide)); err != nil {
		t.Fatal(err)
	}
	if err := s.JS.DeleteConsumer(t.Context(), "AGENT_0", "persist"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Fetch(t.Context(), wide); err == nil {
		t.Fatal("a consumer that is gone answers")
	}
	if got := positions(fetch(t, q, wide)); got != "1 2 3" {
		t.Fatalf("positions %q", got)
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
	if _, err := queues[0].Fetch(t.Context(), wide); err == nil {
		t.Fatal("a stream that is gone answers")
	}
	if _, err := natsjs.New(s.JS, 0, natsjs.Config{Durable: "a.b"}); err == nil {
		t.Fatal("a durable with a dot is taken")
	}
}

// BenchmarkFetchAck is what AckExplicit costs: packs of one event, fetched and confirmed.
func BenchmarkFetchAck(b *testing.B) {
	s := testkit.NATS(b)
	q := open(b, s, natsjs.Config{})
	const n = 2000
	for b.Loop() {
		b.StopTimer()
		fill(b, s, n)
		b.StartTimer()
		for got := 0; got < n; {
			msgs := fetch(b, q, wide)
			if err := q.Ack(b.Context(), msgs); err != nil {
				b.Fatal(err)
			}
			got += len(msgs)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
