package natsjs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// intake is a Take that numbers posts, and can be held up.
type intake struct {
	mu      sync.Mutex
	last    map[schema.RunKey]schema.Seq
	busy    map[schema.RunKey]bool
	sizes   []int
	bodies  map[schema.RunKey][]string
	doubled bool          // two goroutines had one run
	gate    chan struct{} // each Take takes one token; nil: none is needed
	inside  atomic.Int64
}

func newIntake(gate chan struct{}) *intake {
	return &intake{last: map[schema.RunKey]schema.Seq{}, busy: map[schema.RunKey]bool{},
		bodies: map[schema.RunKey][]string{}, gate: gate}
}

func (d *intake) storePosts(ctx context.Context, key schema.RunKey, posts []producers.Post,
	answers []producers.Answer) []producers.Answer {
	d.mu.Lock()
	d.doubled = d.doubled || d.busy[key]
	d.busy[key] = true
	d.mu.Unlock()
	d.inside.Add(1)
	if d.gate != nil {
		select {
		case <-d.gate:
		case <-ctx.Done():
		}
	}
	d.inside.Add(-1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy[key] = false
	d.sizes = append(d.sizes, len(posts))
	for i := range posts {
		if err := context.Cause(ctx); err != nil {
			answers = append(answers, producers.Answer{Refusal: refusal(err)})
			continue
		}
		text := string(posts[i].Body)
		if text == "bad" || posts[i].Unserved != "" {
			answers = append(answers, producers.Answer{Refusal: &producers.Refusal{Status: 400, Number: 20001,
				Code: "BAD", Message: "\"quoted\"\n<é> " + posts[i].Unserved}})
			continue
		}
		d.last[key]++
		d.bodies[key] = append(d.bodies[key], text)
		answers = append(answers, producers.Answer{First: d.last[key], Last: d.last[key], Events: 1,
			Replayed: len(posts[i].Keys) > 0})
	}
	return answers
}

func refusal(err error) *producers.Refusal {
	r := &producers.Refusal{Status: 503, Number: 20012, Code: "BUSY", Message: "full", Retry: 2}
	if errors.Is(err, producers.ErrClosed) {
		r.Code = "SHUTTING-DOWN"
	}
	return r
}

// inbox runs one; stop ends it and gives what Run gave.
func inbox(t testing.TB, k *testkit.Server, d *intake, change ...func(*natsjs.InboxConfig)) (stop func() error) {
	t.Helper()
	l, err := natsjs.Open(t.Context(), k.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg := natsjs.InboxConfig{Log: l, Take: d.storePosts, Refuse: refusal}
	for _, c := range change {
		c(&cfg)
	}
	in, err := natsjs.NewInbox(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := stop(); err != nil && !t.Failed() {
			t.Errorf("inbox: %v", err)
		}
	})
	eventually(t, "somebody listens", func() bool {
		m, err := k.Conn.Request("ingest.warm.up", []byte("x"), 5*time.Second)
		return err == nil && m != nil
	})
	return stop
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func open1(gate chan struct{}) { gate <- struct{}{} }

// gateFor lets the message pass with which inbox finds out that it runs.
func gateFor() chan struct{} {
	gate := make(chan struct{}, 1000)
	open1(gate)
	return gate
}

// What comes while a run is in work collects, keeps its order, and is handed on together; another run does not
// wait for it.
func TestInboxCollects(t *testing.T) {
	k := testkit.NATS(t)
	gate := gateFor()
	d := newIntake(gate)
	inbox(t, k, d)
	js, err := jetstream.New(k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	var futures []jetstream.PubAckFuture
	for i := range n {
		f, err := js.PublishAsync("ingest.acme.run", []byte(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
		if i == 0 {
			eventually(t, "the first is in work", func() bool { return d.inside.Load() == 1 })
		}
	}
	other, err := js.PublishAsync("ingest.acme.other", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other run is in work", func() bool { return d.inside.Load() == 2 })
	for range 3 {
		open1(gate)
	}
	stream := fmt.Sprintf("AGENT_%d", schema.Partition("run", k.Partitions))
	for i, f := range append(futures, other) {
		select {
		case ack := <-f.Ok():
			if f != other && (ack.Sequence != uint64(i+1) || ack.Stream != stream || ack.Duplicate) {
				t.Fatalf("%d: %+v", i, ack)
			}
		case err := <-f.Err():
			t.Fatal(err)
		case <-time.After(20 * time.Second):
			t.Fatalf("no answer to %d", i)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, b := range d.bodies[schema.RunKey{Tenant: "acme", Run: "run"}] {
		if b != fmt.Sprint(i) {
			t.Fatalf("place %d has %s", i, b)
		}
	}
	if len(d.sizes) != 4 || d.doubled {
		t.Errorf("taken in %d parts of %v, two at once %v", len(d.sizes), d.sizes, d.doubled)
	}
}

// Answers are what clients of JetStream take for its own.
func TestInboxAnswers(t *testing.T) {
	k := testkit.NATS(t)
	inbox(t, k, newIntake(nil))
	js, err := jetstream.New(k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	subject := "ingest.acme.run"
	ack, err := js.Publish(t.Context(), subject, []byte("good"), jetstream.WithMsgID("m"))
	if err != nil || !ack.Duplicate || ack.Sequence != 1 {
		t.Fatalf("%+v %v", ack, err)
	}
	stream := fmt.Sprintf("AGENT_%d", schema.Partition("run", k.Partitions))
	ack, err = js.Publish(t.Context(), subject, []byte("good"), jetstream.WithExpectStream(stream))
	if err != nil || ack.Duplicate || ack.Sequence != 2 || ack.Stream != stream {
		t.Fatalf("%+v %v", ack, err)
	}
	for name, opt := range map[string]jetstream.PublishOpt{
		"Nats-Expected-Stream":                jetstream.WithExpectStream("OTHER"),
		"Nats-Expected-Last-Sequence":         jetstream.WithExpectLastSequence(2),
		"Nats-Expected-Last-Subject-Sequence": jetstream.WithExpectLastSequencePerSubject(2),
		"Nats-Expected-Last-Msg-Id":           jetstream.WithExpectLastMsgID("m"),
		"Nats-TTL":                            jetstream.WithMsgTTL(time.Minute),
	} {
		var api *jetstream.APIError
		if _, err := js.Publish(t.Context(), subject, []byte("good"), opt); !errors.As(err, &api) || api.Code != 400 ||
			api.ErrorCode != 20001 ||
			api.Description != "BAD: \"quoted\"\n<é> "+name {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := k.Conn.Request(subject, []byte("good"), 5*time.Second)
	if err != nil || string(m.Data) != fmt.Sprintf(`{"stream":%q,"seq":3,"first_seq":3}`, stream) {
		t.Errorf("%s %v", m.Data, err)
	}
	for _, s := range []string{"ingest.acme", "ingest.acme.run.child", "ingest"} {
		if m, err := k.Conn.Request(s, []byte("good"), 5*time.Second); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v %v", s, m, err)
		}
	}
}

// Nobody can have this node's rights by way of a reply subject.
func TestInboxAnswersOnlyToInboxes(t *testing.T) {
	k := testkit.NATS(t)
	d := newIntake(nil)
	var logged bytes.Buffer
	refused := make(chan string, 100)
	stop := inbox(t, k, d, func(c *natsjs.InboxConfig) {
		c.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
		c.Hooks.Refused = func(code string) { refused <- code }
		c.WarnInterval = time.Hour
	})
	all, err := k.Conn.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	// A server of 2.15.3 or newer passes on no message that is to be answered below $JS.API.
	replies := []string{"agent.0.acme.run.-", "live.agent.0.acme.run.-", "ingest.acme.run", "$KV.AGENT_KEYS.x", "x"}
	for _, r := range replies {
		if err := k.Conn.PublishRequest("ingest.acme.run", r, []byte("secret body")); err != nil {
			t.Fatal(err)
		}
		if got := <-refused; got != "BAD-REPLY" {
			t.Errorf("%s: %s", r, got)
		}
	}
	if err := k.Conn.Publish("ingest.acme.run", []byte("bad")); err != nil { // nobody asks for an answer
		t.Fatal(err)
	}
	if got := <-refused; got != "BAD" {
		t.Error(got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := k.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for n, _, _ := all.Pending(); n > 0; n, _, _ = all.Pending() {
		if m, err := all.NextMsg(time.Second); err != nil || !strings.HasPrefix(m.Subject, "ingest.") ||
			strings.Contains(string(m.Data), "stream") {
			t.Errorf("%s %s %v", m.Subject, m.Data, err)
		}
	}
	if len(d.bodies[schema.RunKey{Tenant: "acme", Run: "run"}]) != 0 {
		t.Error("a message was stored whose sender is not told")
	}
	var line struct{ Msg, Level, Run, Code string }
	if err := json.Unmarshal(logged.Bytes(), &line); err != nil || line.Level != "WARN" || line.Run != "acme/run" ||
		line.Code != "BAD-REPLY" || strings.Contains(logged.String(), "secret") {
		t.Errorf("log, of which one line is allowed: %v\n%s", err, logged.String())
	}
}

// What is above the bounds is refused at once, and what was taken is answered all the same.
func TestInboxOverload(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*natsjs.InboxConfig)
		subject func(i int) string
		taken   int
	}{
		// A message takes 256 bytes, its body and its reply subject.
		"bytes": {func(c *natsjs.InboxConfig) { c.MaxPending = 15 * 1400 },
			func(i int) string { return fmt.Sprint("ingest.acme.run", i) }, 8},
		"bytes, a run": {func(c *natsjs.InboxConfig) { c.MaxPending = 32 * 1400 },
			func(int) string { return "ingest.acme.run" }, 8},
		"runs": {func(c *natsjs.InboxConfig) { c.MaxRuns = 15 },
			func(i int) string { return fmt.Sprint("ingest.acme.run", i) }, 8},
	} {
		t.Run(name, func(t *testing.T) {
			k := testkit.NATS(t)
			gate := gateFor()
			d := newIntake(gate)
			var refused atomic.Int64
			inbox(t, k, d, tt.change, func(c *natsjs.InboxConfig) { c.Hooks.Refused = func(string) { refused.Add(1) } })
			js, err := jetstream.New(k.Conn)
			if err != nil {
				t.Fatal(err)
			}
			const sent = 20
			var futures []jetstream.PubAckFuture
			for i := range sent {
				f, err := js.PublishAsync(tt.subject(i), bytes.Repeat([]byte("x"), 1100))
				if err != nil {
					t.Fatal(err)
				}
				futures = append(futures, f)
			}
			for i := tt.taken; i < sent; i++ { // while nothing else is answered
				var api *jetstream.APIError
				select {
				case err := <-futures[i].Err():
					if !errors.As(err, &api) || api.Code != 503 || api.ErrorCode != 20012 {
						t.Errorf("%d: %v", i, err)
					}
				case ack := <-futures[i].Ok():
					t.Fatalf("%d was taken: %+v", i, ack)
				case <-time.After(20 * time.Second):
					t.Fatalf("no answer to %d", i)
				}
			}
			other, err := js.PublishAsync("ingest.other.run", bytes.Repeat([]byte("x"), 1100))
			if err != nil {
				t.Fatal(err)
			}
			close(gate)
			select {
			case <-other.Ok():
			case err := <-other.Err():
				t.Errorf("another tenant's: %v", err)
			case <-time.After(20 * time.Second):
				t.Fatal("no answer to another tenant")
			}
			for i := range tt.taken {
				select {
				case <-futures[i].Ok():
				case err := <-futures[i].Err():
					t.Errorf("%d: %v", i, err)
				case <-time.After(20 * time.Second):
					t.Fatalf("no answer to %d", i)
				}
			}
			if refused.Load() != int64(sent-tt.taken) {
				t.Errorf("%d counted", refused.Load())
			}
			if _, err := js.Publish(t.Context(), "ingest.acme.again", []byte("x")); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

// At the end what was taken is answered; beyond the limit it is refused, and nothing waits for ever.
func TestInboxShutdown(t *testing.T) {
	for _, within := range []bool{true, false} {
		t.Run(fmt.Sprintf("within the limit %v", within), func(t *testing.T) {
			k := testkit.NATS(t)
			gate := gateFor()
			d := newIntake(gate)
			limit := time.Minute
			if !within {
				limit = 50 * time.Millisecond
			}
			stop := inbox(t, k, d, func(c *natsjs.InboxConfig) { c.DrainLimit = limit })
			js, err := jetstream.New(k.Conn)
			if err != nil {
				t.Fatal(err)
			}
			const n = 3500 // in several parts
			var futures []jetstream.PubAckFuture
			for range n {
				f, err := js.PublishAsync("ingest.acme.run", []byte("x"))
				if err != nil {
					t.Fatal(err)
				}
				futures = append(futures, f)
			}
			if err := k.Conn.Flush(); err != nil { // the server has them, and gives them to the inbox before its end
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- stop() }()
			eventually(t, "nobody takes messages any more", func() bool {
				_, err := k.Conn.Request("ingest.acme.late", nil, 5*time.Second)
				return errors.Is(err, nats.ErrNoResponders)
			})
			if within {
				close(gate)
			}
			acked := 0
			for i, f := range futures {
				select {
				case <-f.Ok():
					acked++
				case err := <-f.Err():
					if within {
						t.Fatalf("%d: %v", i, err)
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("no answer to %d", i)
				}
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if within && acked != n || !within && acked != 0 || int(d.last[schema.RunKey{Tenant: "acme", Run: "run"}]) != acked {
				t.Errorf("%d acknowledged, %d stored", acked, d.last[schema.RunKey{Tenant: "acme", Run: "run"}])
			}
		})
	}
}

// An inbox whose connection was closed ends and says so.
func TestInboxWithoutConnection(t *testing.T) {
	k := testkit.NATS(t)
	nc := k.Dial(t)
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	in, err := natsjs.NewInbox(natsjs.InboxConfig{Log: l, Take: newIntake(nil).storePosts, Refuse: refusal})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- in.Run(context.Background()) }()
	eventually(t, "somebody listens", func() bool {
		_, err := k.Conn.Request("ingest.warm.up", []byte("x"), 5*time.Second)
		return err == nil
	})
	nc.Close()
	if err := <-ended; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Error(err)
	}
	if err := in.Run(context.Background()); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Error(err)
	}
	if _, err := natsjs.NewInbox(natsjs.InboxConfig{Log: l}); err == nil {
		t.Error("an inbox without Take")
	}
	if _, err := natsjs.NewInbox(natsjs.InboxConfig{Log: l, Take: newIntake(nil).storePosts, Refuse: refusal,
		MaxRuns: -1}); err == nil {
		t.Error("a negative limit")
	}
}
