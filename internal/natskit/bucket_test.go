package natskit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lossy is a stream of one subject, as JetStream answers for it, that does what it is asked and keeps some of
// its answers to itself.
type lossy struct {
	mu     sync.Mutex
	lose   uint // bit n: the answer to request n
	asked  int
	stored []*nats.Msg // position n is at n-1
}

// refusing answers as a server that knows no leader.
const refusing = `{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`

func (l *lossy) answer(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.do(m)
	l.asked++
	if l.lose>>(l.asked-1)&1 == 0 {
		_ = m.Respond([]byte(text))
	}
}

// again begins to count, and to lose answers, anew.
func (l *lossy) again(lose uint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.asked = lose, 0
}

// seen returns how many requests there were, and how many messages are stored.
func (l *lossy) seen() (asked, stored int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked, len(l.stored)
}

func (l *lossy) do(m *nats.Msg) string {
	if at := m.Header.Get(jetstream.ExpectedLastSubjSeqHeader); at != "" && at != strconv.Itoa(len(l.stored)) {
		return `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"}}`
	}
	l.stored = append(l.stored, m)
	return fmt.Sprintf(`{"stream":"KV_x","seq":%d}`, len(l.stored))
}

func (l *lossy) read(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.lose>>(l.asked-1)&1 == 1 {
		if l.asked%2 == 0 {
			_ = m.Respond([]byte(refusing))
		}
		return
	}
	if len(l.stored) == 0 {
		_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
		return
	}
	last := l.stored[len(l.stored)-1]
	head := "NATS/1.0\r\n"
	for name := range last.Header {
		head += name + ": " + last.Header.Get(name) + "\r\n"
	}
	text, _ := json.Marshal(map[string]any{"message": map[string]any{"seq": len(l.stored), "subject": last.Subject,
		"hdrs": []byte(head + "\r\n"), "data": last.Data}})
	_ = m.Respond(text)
}

// lossyBucket returns a bucket on a server without JetStream, whose stream is l.
func lossyBucket(t *testing.T, url string, name string, l *lossy) *Bucket {
	t.Helper()
	nc, err := Dial(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := &Bucket{nc: nc, name: name}
	if b.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	for subject, fn := range map[string]nats.MsgHandler{b.subject(">"): l.answer,
		"$JS.API.STREAM.MSG.GET." + b.stream(): l.read} {
		if _, err := nc.Subscribe(subject, fn); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return b
}

func plainServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	return s.ClientURL()
}

// Whichever answers are lost, a value is created once, another one is told of it, and one of two who take it gets
// it.
func TestBucketDoesOnceWhatIsNotAnswered(t *testing.T) {
	url := plainServer(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	for lose := range uint(16) {
		wg.Go(func() {
			l := &lossy{lose: lose}
			b := lossyBucket(t, url, fmt.Sprint("b", lose), l)
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			if v, err := b.Create(ctx, "k", []byte("mine")); err != nil || string(v) != "mine" {
				t.Errorf("losing %04b: create: %s %v", lose, v, err)
			}
			if _, n := l.seen(); n != 1 {
				t.Errorf("losing %04b: created %d times", lose, n)
			}
			if v, err := b.Create(ctx, "k", []byte("other")); err != nil || string(v) != "mine" {
				t.Errorf("losing %04b: create again: %s %v", lose, v, err)
			}
			l.again(lose)
			got := make(chan error, 2)
			for range 2 {
				go func() {
					var v []byte
					err := b.Take(ctx, "k", func(value []byte) bool { v = value; return true })
					if err == nil && string(v) != "mine" {
						err = fmt.Errorf("took %q", v)
					}
					got <- err
				}()
			}
			first, second := <-got, <-got
			if first != nil {
				first, second = second, first
			}
			if _, n := l.seen(); n != 2 || first != nil || !errors.Is(second, ErrNoMessage) {
				t.Errorf("losing %04b: take: %v, %v, %d stored", lose, first, second, n)
			}
			if v, err := b.Create(ctx, "k", []byte("third")); err != nil || string(v) != "third" { // behind the deletion
				t.Errorf("losing %04b: create behind a deletion: %s %v", lose, v, err)
			}
		})
	}
}

// A read that nobody answers is asked again soon, and given up when its time is over, with what was wrong.
func TestReadsAreAskedAgain(t *testing.T) {
	l := &lossy{lose: 0b111}
	b := lossyBucket(t, plainServer(t), "b", l)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	_, err := LastFromLeader(ctx, b.nc, b.stream(), b.subject("k"))
	if n, _ := l.seen(); !errors.Is(err, ErrNoMessage) || n != 4 {
		t.Errorf("%v after %d requests", err, n)
	}
	if took := time.Since(begun); took < Try/4 {
		t.Errorf("it took %s", took)
	}
	l.again(^uint(0))
	short, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	_, err = LastFromLeader(short, b.nc, b.stream(), b.subject("k"))
	if n, _ := l.seen(); !errors.Is(err, context.DeadlineExceeded) || n < 2 {
		t.Errorf("nobody answers: %v after %d requests", err, n)
	}
	b.nc.Close()
	if _, err := LastFromLeader(ctx, b.nc, b.stream(), b.subject("k")); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("closed: %v", err)
	}
}
