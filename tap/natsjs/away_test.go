package natsjs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/tap"
)

// TestLogAway: the log's server ends and begins anew, again and again, while events are written and two members deliver
// them. Nothing is lost, and runs stay in order.
func TestLogAway(t *testing.T) {
	where := natskit.Embedded{StoreDir: t.TempDir(), Listen: "127.0.0.1", Port: -1}
	begin := func() *server.Server {
		s, err := natskit.Serve(where)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := begin()
	end := func() { s.Shutdown(); s.WaitForShutdown() }
	t.Cleanup(func() { end() })
	at, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(s.Addr())
	}
	where.Port = at.Port
	k := &testkit.Server{Server: s, Partitions: 4}
	k.Conn = k.Dial(t)
	js, err := jetstream.New(k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	k.JS = js
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: k.Partitions}); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, server: k}
	for i := range 20 {
		w.runs = append(w.runs, persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)},
			"20260228"))
	}
	r := newRecord()
	w.join(tap.Spec{Name: "away"}, r, nil)
	w.join(tap.Spec{Name: "away"}, r, nil)
	var writing atomic.Bool
	writing.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; writing.Load(); i++ {
			p := w.runs[i%len(w.runs)].Texts("", 5)
			publishUntil(t, js, &nats.Msg{Subject: schema.Subject(p.Key, "", k.Partitions), Header: p.Headers(), Data: p.Body})
			w.total += p.Count
		}
	}()
	for range 3 {
		time.Sleep(300 * time.Millisecond)
		end()
		s = begin()
	}
	time.Sleep(200 * time.Millisecond)
	writing.Store(false)
	<-done
	w.until(r, w.total)
	_, repeats, _ := r.have()
	t.Logf("%d events, %d came twice", w.total, repeats)
}

// publishUntil stores a message once, however often it is tried: the run's last message says whether it is there.
func publishUntil(t *testing.T, js jetstream.JetStream, m *nats.Msg) {
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		last, err := lastSeq(ctx, js, m.Subject)
		if err == nil && last == m.Header.Get(schema.HeaderSeq) {
			cancel()
			return
		}
		if err == nil {
			_, err = js.PublishMsg(ctx, m)
		}
		cancel()
		if err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lastSeq returns the header of the newest message of a subject.
func lastSeq(ctx context.Context, js jetstream.JetStream, subject string) (string, error) {
	m, err := natskit.LastFromLeader(ctx, js.Conn(), "AGENT_"+subject[6:7], subject)
	if errors.Is(err, natskit.ErrNoMessage) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return nats.Header(m.Header).Get(schema.HeaderSeq), nil
}
