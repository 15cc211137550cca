package natsjs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/schema"
)

var onePack = &schema.Pack{Key: schema.RunKey{Tenant: "acme", Run: "run"}, First: 7, Count: 1, Writer: "w",
	Head: schema.Head{Day: "20260102", LastID: "evt_1"}, Body: []byte("{}\n")}

// answering returns acks whose messages go to subject "store", where answer says what comes back.
func answering(t *testing.T, answer func(*nats.Msg)) *acks {
	t.Helper()
	k := testkit.NATS(t)
	if answer != nil {
		far := k.Dial(t)
		if _, err := far.Subscribe("store", answer); err != nil {
			t.Fatal(err)
		}
		if err := far.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return &acks{nc: k.Dial(t)}
}

func respond(t *testing.T, m *nats.Msg, text string) {
	if err := m.Respond([]byte(text)); err != nil {
		t.Error(err)
	}
}

func TestPublishUnderstandsEveryAnswer(t *testing.T) {
	for _, c := range []struct {
		answer string
		seq    uint64
		want   error
	}{
		{`{"stream":"S","seq":12}`, 12, nil},
		{`{"stream":"S", "seq":12, "duplicate":true}`, 12, nil},
		{`{"stream":"S","domain":"hub","seq":13}`, 13, nil},
		{`{"stream":"other","seq":14}`, 14, nil},
		{`{"stream":"S","seq":9223372036854775808}`, 1 << 63, nil},
		{`{"seq":12}`, 0, jetstream.ErrInvalidJSAck},
		{`{"stream":"S","seq":}`, 0, jetstream.ErrInvalidJSAck},
		{`{"stream":"S","seq":1x}`, 0, jetstream.ErrInvalidJSAck},
		{``, 0, jetstream.ErrInvalidJSAck},
		{`no`, 0, jetstream.ErrInvalidJSAck},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}`, 0,
			producers.ErrConflict},
		{`{"error":{"code":400,"err_code":10164,"description":"in flight"},"stream":"S","seq":0}`, 0, producers.ErrConflict},
		{`{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"},"stream":"S","seq":0}`, 0,
			producers.ErrUnavailable},
		{`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"S","seq":0}`, 0,
			producers.ErrFull},
		{`{"error":{"code":503,"err_code":10023,"description":"insufficient resources"},"stream":"S","seq":0}`, 0,
			producers.ErrFull},
		{`{"error":{"code":400,"err_code":10002,"description":"resource limits exceeded for account"},"stream":"S","seq":0}`, 0, producers.ErrFull},
	} {
		a := answering(t, func(m *nats.Msg) { respond(t, m, c.answer) })
		seq, err := a.publish(t.Context(), onePack, "store", "filter", "S", 3)
		if seq != c.seq || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %d %v", c.answer, seq, err)
		}
		if c.want != nil && !errors.Is(err, c.want) && !errors.Is(classify(err), c.want) {
			t.Errorf("%s: %v", c.answer, err)
		}
	}
}

// What is sent is what jetstream.PublishMsg would send.
func TestPublishSendsAllHeaders(t *testing.T) {
	got := make(chan *nats.Msg, 2)
	a := answering(t, func(m *nats.Msg) { got <- m; respond(t, m, `{"stream":"S","seq":1}`) })
	long := *onePack
	long.Batch, long.Part, long.Head.State = "hash", 2, schema.StateRunning
	long.Head.Lane = schema.Lane{Owner: "w", Epoch: 3}
	for _, p := range []*schema.Pack{&long, onePack} { // the short one must have nothing of the long one
		if _, err := a.publish(t.Context(), p, "store", "filter", "S", 41); err != nil {
			t.Fatal(err)
		}
		m := <-got
		want := p.Headers()
		want[jetstream.ExpectedLastSubjSeqHeader] = []string{"41"}
		want[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{"filter"}
		want[jetstream.ExpectedStreamHeader] = []string{"S"}
		if fmt.Sprint(m.Header) != fmt.Sprint(nats.Header(want)) || string(m.Data) != string(p.Body) {
			t.Errorf("sent %v %q, want %v", m.Header, m.Data, want)
		}
	}
}

func TestPublishWithoutListener(t *testing.T) {
	_, err := answering(t, nil).publish(t.Context(), onePack, "store", "filter", "S", 0)
	if !errors.Is(err, jetstream.ErrNoStreamResponse) || !errors.Is(classify(err), producers.ErrUnavailable) {
		t.Fatal(err)
	}
}

// An answer that comes after its caller has left is nobody else's.
func TestLateAnswersAreForNobody(t *testing.T) {
	held := make(chan *nats.Msg, 1)
	n := 0
	a := answering(t, func(m *nats.Msg) {
		if n++; n == 1 {
			held <- m
			return
		}
		if n == 2 {
			respond(t, <-held, `{"stream":"S","seq":1}`) // the late one comes first
		}
		respond(t, m, fmt.Sprintf(`{"stream":"S","seq":%d}`, n))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.publish(ctx, onePack, "store", "filter", "S", 0); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(classify(err), producers.ErrUnanswered) {
		t.Fatal(err)
	}
	for want := uint64(2); want < 50; want++ {
		if seq, err := a.publish(t.Context(), onePack, "store", "filter", "S", 0); err != nil || seq != want {
			t.Fatalf("%d %v, want %d", seq, err, want)
		}
	}
	if len(a.waiting) != 0 {
		t.Fatalf("%d still wait", len(a.waiting))
	}
}

// Many at once, some of which give up at any moment: each that is answered has its own answer.
func TestEachGetsItsOwnAnswer(t *testing.T) {
	a := answering(t, func(m *nats.Msg) {
		respond(t, m, `{"stream":"S","seq":`+m.Header.Get(schema.HeaderSeq)+`}`)
	})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 300 {
				p := *onePack
				p.First = schema.Seq(1 + w*1000 + i)
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
				}
				seq, err := a.publish(ctx, &p, "store", "filter", "S", 0)
				cancel()
				if err == nil && seq != uint64(p.First) || err != nil && i%3 != 0 {
					t.Errorf("%d got %d %v", p.First, seq, err)
				}
			}
		})
	}
	wg.Wait()
	if len(a.waiting) != 0 {
		t.Errorf("%d still wait", len(a.waiting))
	}
}

// Who waits when the connection is closed is told at once, and so is who comes later.
func TestPublishOnAClosedConnection(t *testing.T) {
	var a *acks
	a = answering(t, func(*nats.Msg) { a.nc.Close() })
	for range 2 {
		if _, err := a.publish(t.Context(), onePack, "store", "filter", "S", 0); !errors.Is(err, nats.ErrConnectionClosed) {
			t.Fatal(err)
		}
	}
}

// What is stored is handed over as it is stored; an answer that nobody waits for any more is reported.
func TestStoredAndMissed(t *testing.T) {
	late, missed := make(chan struct{}), make(chan struct{}, 1)
	a := answering(t, func(m *nats.Msg) {
		if m.Subject == "store" && m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == "4" {
			<-late
		}
		respond(t, m, `{"stream":"S","seq":12}`)
	})
	var stored []schema.Pack
	a.stored = func(p schema.Pack, copied bool) {
		if stored = append(stored, p); copied {
			t.Error("there was no copy")
		}
	}
	a.missed = func() { missed <- struct{}{} }
	if _, err := a.publish(t.Context(), onePack, "store", "filter", "S", 3); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.publish(ctx, onePack, "store", "filter", "S", 4); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	close(late)
	<-missed
	if len(stored) != 1 || stored[0].Head.Stored != 12 || stored[0].Head.Last != onePack.Last() ||
		onePack.Head.Stored != 0 {
		t.Errorf("%+v was handed over", stored)
	}
}

// The copy of a pack is taken while its append waits, once, and no other. When no answer comes, it is reported.
func TestTaken(t *testing.T) {
	var a *acks
	header := func() []byte {
		a.mu.Lock()
		defer a.mu.Unlock()
		o := a.named["store"]
		return slices.Concat(o.header[:len(o.header)-2], []byte("Nats-Sequence: 12\r\n\r\n"))
	}
	var own []byte
	a = answering(t, func(m *nats.Msg) {
		if m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == "5" {
			respond(t, m, `{"stream":"S","seq":12}`)
			return
		}
		own = header()
		foreign := bytes.Replace(own, []byte(": w\r\n"), []byte(": v\r\n"), 1)
		for i, c := range []struct {
			name   string
			header []byte
			want   bool
		}{{"store", foreign, false}, {"stor", own, false}, {"store", own[:20], false}, {"store", own, true},
			{"store", own, false}} {
			if got := a.claimCopy([]byte(c.name), c.header); got != c.want {
				t.Errorf("%d: %t", i, got)
			}
		}
		if m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == "3" {
			respond(t, m, `{"stream":"S","seq":12}`)
		}
	})
	var copied []bool
	missed := 0
	a.stored = func(_ schema.Pack, c bool) { copied = append(copied, c) }
	a.missed = func() { missed++ }
	publish := func(after uint64) error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := a.publish(ctx, onePack, "store", "filter", "S", after)
		return err
	}
	for end := time.Now().Add(10 * time.Second); a.wire == nil || !a.wire.Ready(); {
		// the first goes by way of the client library
		if err := publish(5); err != nil || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	copied = nil
	if err := publish(3); err != nil || missed != 0 || !slices.Equal(copied, []bool{true}) {
		t.Errorf("answered: %v, copied %v, missed %d", err, copied, missed)
	}
	if a.claimCopy([]byte("store"), own) {
		t.Error("taken when the append had ended")
	}
	if err := publish(4); err == nil || missed != 1 || len(copied) != 1 {
		t.Errorf("not answered: %v, copied %v, missed %d", err, copied, missed)
	}
	if err := publish(5); err != nil || missed != 1 || !slices.Equal(copied, []bool{true, false}) {
		t.Errorf("without a copy: %v, copied %v, missed %d", err, copied, missed)
	}
}
