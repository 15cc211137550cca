package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/edge"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// listenOverNATS puts an edge's parts together that take events over NATS, in this process, so that the race
// detector sees them. stop ends it in order.
func listenOverNATS(t testing.TB, nc *nats.Conn, hooks edge.Hooks) (stop func()) {
	t.Helper()
	log, err := pubjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := fanjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := fanout.New(fanout.Config{Stream: reader, Tail: reader})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pubjs.OpenKeys(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := edge.New(edge.Config{Hub: hub, Appender: app, Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	in, err := pubjs.NewInbox(pubjs.InboxConfig{Log: log, Take: srv.StorePosts, Refuse: srv.Refusal})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, others := make(chan error, 1), nc.NumSubscriptions() // requests have one for their answers
	go func() { ended <- in.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		if cancel(); t.Failed() {
			return
		}
		if err := <-ended; err != nil {
			t.Errorf("inbox: %v", err)
		}
	})
	t.Cleanup(stop)
	eventually(t, 20*time.Second, "the inbox listens",
		func() bool { return nc.NumSubscriptions() > others && nc.Flush() == nil })
	return stop
}

func deltaOf(text string) []byte {
	return fmt.Appendf(nil, `{"type":"text.delta","payload":{"text":%q}}`, text)
}

// agentOn is a connection of an agent, which knows nothing of this product.
func agentOn(t testing.TB, k *testkit.Server) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(k.Dial(t), jetstream.WithPublishAsyncMaxPending(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// answerTo waits for the answer to an asynchronous publish.
func answerTo(t testing.TB, f jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	select {
	case ack := <-f.Ok():
		return ack, nil
	case err := <-f.Err():
		return nil, err
	case <-time.After(30 * time.Second):
		t.Error("no answer")
		return nil, context.DeadlineExceeded
	}
}

// payloads reads the log beside every layer of ours: texts of a run by seq. Each seq stands there once.
func payloads(t testing.TB, url string) map[string][]string {
	t.Helper()
	lines := streamLines(t, url)
	out := make(map[string][]string)
	for at := range lines {
		run := at[:strings.LastIndexByte(at, '/')]
		out[run] = append(out[run], "")
	}
	text := regexp.MustCompile(`"text":"([^"]*)"`)
	for run := range out {
		for i := range out[run] {
			line, ok := lines[fmt.Sprintf("%s/%d", run, i+1)]
			if !ok {
				t.Fatalf("%s has a hole at %d", run, i+1)
			}
			if m := text.FindStringSubmatch(line); m != nil {
				out[run][i] = m[1]
			}
		}
	}
	return out
}

// 10,000 events of 52 runs from four connections that wait for nothing: each is acknowledged with its own
// number, and stored once, in the order in which it was published.
func TestNATSIngestKeepsOrder(t *testing.T) {
	beside(t)
	const runs, events, conns = 52, 10_000, 4
	k := testkit.NATS(t)
	var stored atomic.Int64
	listenOverNATS(t, k.Dial(t), edge.Hooks{Ingested: func(n int) { stored.Add(int64(n)) }})
	var wg sync.WaitGroup
	for c := range conns {
		js := agentOn(t, k)
		wg.Go(func() {
			type sent struct {
				run string
				seq int
				f   jetstream.PubAckFuture
			}
			var all []sent
			next := map[string]int{}
			for i := range events / conns {
				run := fmt.Sprintf("run_%d", i%(runs/conns)*conns+c)
				next[run]++
				f, err := js.PublishAsync("ingest.acme."+run, deltaOf(fmt.Sprint(next[run])))
				if err != nil {
					t.Error(err)
					return
				}
				all = append(all, sent{run, next[run], f})
			}
			for _, s := range all {
				ack, err := answerTo(t, s.f)
				want := natskit.StreamName(schema.Partition(s.run, k.Partitions))
				if err != nil || ack.Sequence != uint64(s.seq) || ack.Stream != want || ack.Duplicate {
					t.Errorf("%s %d: %+v %v", s.run, s.seq, ack, err)
					return
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for run, texts := range payloads(t, k.Server.ClientURL()) {
		for i, text := range texts {
			if text != fmt.Sprint(i+1) {
				t.Fatalf("%s: %s at %d", run, text, i+1)
			}
		}
		total += len(texts)
	}
	messages := 0
	eachStream(t, k.Server.ClientURL(), func(s jetstream.Stream) { messages += int(s.CachedInfo().State.Msgs) })
	if total != events || stored.Load() != events || messages >= events {
		t.Errorf("%d stored, %d counted, in %d messages", total, stored.Load(), messages)
	}
	t.Logf("%d events in %d messages", total, messages)
}

// Every way to be wrong, between good neighbours of the same run: the error says what and where, and nobody
// else pays for it.
func TestNATSIngestRefuses(t *testing.T) {
	beside(t)
	k := testkit.NATS(t)
	listenOverNATS(t, k.Dial(t), edge.Hooks{})
	js := agentOn(t, k)
	if _, err := js.Publish(t.Context(), "ingest.acme.ended",
		[]byte(`{"type":"run.lifecycle","payload":{"state":"done"}}`)); err != nil {
		t.Fatal(err)
	}
	type try struct {
		subject, body string
		code, number  int
		text          string
		f             jetstream.PubAckFuture
	}
	var tries []*try
	for _, bad := range []try{
		{"ingest.acme.run", `{"type":"text.delta"`, 400, 20001, "KAI-STREAM-PROTO-0001: line 1: ", nil},
		{"ingest.acme.run", string(deltaOf("x")) + "\n\n{}", 400, 20002, "KAI-STREAM-PROTO-0002: line 3: ", nil},
		{"ingest.acme.run", ``, 400, 20001, "KAI-STREAM-PROTO-0001: line 1: there is no event", nil},
		{"ingest.acme.run", `{"type":"custom.x","run_id":"other","payload":{}}`, 400, 20003,
			"KAI-STREAM-PROTO-0001: line 1: ", nil},
		{"ingest.acme.run", `{"type":"custom.x","payload":{"x":"` + strings.Repeat("x", schema.MaxEventBytes) + `"}}`,
			413, 20004, "KAI-STREAM-PROTO-0001: line 1: ", nil},
		{"ingest.acme.run", `{"type":"text.delta","seq":7777,"payload":{"text":"x"}}`, 409, 20007,
			"SEQ-MISMATCH: line 1: ", nil},
		{"ingest.acme.a$b", string(deltaOf("x")), 400, 20005, "BAD-ID: ", nil},
		{"ingest.a$b.run", string(deltaOf("x")), 400, 20005, "BAD-ID: ", nil},
		{"ingest.acme." + strings.Repeat("r", 200), string(deltaOf("x")), 400, 20005, "BAD-ID: ", nil},
		{"ingest.acme.ended", string(deltaOf("x")), 409, 20008, "RUN-ENDED: line 1: ", nil},
	} {
		for range 5 {
			again := bad
			tries = append(tries, &try{subject: "ingest.acme.run", body: string(deltaOf("good"))}, &again)
		}
	}
	for _, x := range tries {
		var err error
		if x.f, err = js.PublishAsync(x.subject, []byte(x.body)); err != nil {
			t.Fatal(err)
		}
	}
	seq := uint64(0)
	for _, x := range tries {
		ack, err := answerTo(t, x.f)
		if x.number == 0 {
			if seq++; err != nil || ack.Sequence != seq {
				t.Errorf("good event %d: %+v %v", seq, ack, err)
			}
			continue
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.Code != x.code || int(api.ErrorCode) != x.number ||
			!strings.HasPrefix(api.Description, x.text) {
			t.Errorf("%s %.60s: %+v %v", x.subject, x.body, ack, err)
		}
	}
	for run, texts := range payloads(t, k.Server.ClientURL()) {
		if run == "acme/run" && len(texts) != int(seq) || run != "acme/run" && run != "acme/ended" {
			t.Errorf("%s has %d events", run, len(texts))
		}
	}
}

// A message that nobody wants an answer to is stored as any other; one with an id is stored once, whoever
// takes the repeat.
func TestNATSIngestRepeats(t *testing.T) {
	beside(t)
	k := testkit.NATS(t)
	for range 2 {
		listenOverNATS(t, k.Dial(t), edge.Hooks{})
	}
	js := agentOn(t, k)
	if err := js.Conn().Publish("ingest.acme.quiet", deltaOf("x")); err != nil {
		t.Fatal(err)
	}
	duplicates := 0
	for i := range 20 {
		id := fmt.Sprint("id ", i/4)
		ack, err := js.Publish(t.Context(), "ingest.acme.run", deltaOf(id), jetstream.WithMsgID(id))
		if err != nil || ack.Sequence != uint64(i/4+1) || ack.Duplicate != (i%4 > 0) {
			t.Fatalf("%d: %+v %v", i, ack, err)
		}
		if ack.Duplicate {
			duplicates++
		}
	}
	var api *jetstream.APIError
	if _, err := js.Publish(t.Context(), "ingest.acme.run", deltaOf("other"),
		jetstream.WithMsgID("id 1")); !errors.As(err, &api) || api.ErrorCode != 20009 || api.Code != 422 {
		t.Errorf("%v", err)
	}
	// The tenant is the subject's and nobody else's: the same run and id of another tenant is another matter.
	if ack, err := js.Publish(t.Context(), "ingest.other.run", deltaOf("other"),
		jetstream.WithMsgID("id 1")); err != nil || ack.Duplicate || ack.Sequence != 1 {
		t.Errorf("%+v %v", ack, err)
	}
	eventually(t, 20*time.Second, "the quiet one is stored",
		func() bool { return len(payloads(t, k.Server.ClientURL())["acme/quiet"]) == 1 })
	all := payloads(t, k.Server.ClientURL())
	if len(all["acme/run"]) != 5 || len(all["other/run"]) != 1 || duplicates != 15 {
		t.Errorf("%v, %d duplicates", all, duplicates)
	}
}

// Two edges share the messages of the same runs; one ends and comes back again and again. What was acknowledged
// is there once, at the place that was told. What was not may be there, once at most.
func TestNATSIngestSurvivesShutdowns(t *testing.T) {
	beside(t)
	k := testkit.NATS(t)
	var by [2]atomic.Int64
	node := func(i int) func() {
		return listenOverNATS(t, k.Dial(t), edge.Hooks{Ingested: func(n int) { by[i].Add(int64(n)) }})
	}
	node(0)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked, unsure := map[string]uint64{}, map[string]bool{} // text → seq
	for p := range 4 {
		js := agentOn(t, k)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; {
				var futures []jetstream.PubAckFuture
				first := n
				for range 50 {
					run := fmt.Sprint("run_", n%7)
					f, err := js.PublishAsync("ingest.acme."+run, deltaOf(fmt.Sprintf("%s %d %d", run, p, n)))
					if err != nil {
						t.Error(err)
						return
					}
					futures, n = append(futures, f), n+1
				}
				for i, f := range futures {
					ack, err := answerTo(t, f)
					mu.Lock()
					if text := fmt.Sprintf("run_%d %d %d", (first+i)%7, p, first+i); err == nil {
						acked[text] = ack.Sequence
					} else {
						unsure[text] = true
					}
					mu.Unlock()
				}
			}
		})
	}
	for range 5 {
		before := by[1].Load()
		stop := node(1)
		eventually(t, 30*time.Second, "the second edge takes its part", func() bool { return by[1].Load() > before+200 })
		stop()
		at := by[0].Load()
		eventually(t, 30*time.Second, "the first edge goes on", func() bool { return by[0].Load() > at+200 })
	}
	cancel()
	wg.Wait()
	times, found := map[string]int{}, 0
	for run, texts := range payloads(t, k.Server.ClientURL()) {
		for i, text := range texts {
			if times[text]++; times[text] > 1 {
				t.Errorf("%q is there twice", text)
			}
			if seq, ok := acked[text]; ok {
				if found++; seq != uint64(i+1) {
					t.Errorf("%s: %q was told %d and is at %d", run, text, seq, i+1)
				}
			} else if !unsure[text] {
				t.Errorf("%s: %q was never published", run, text)
			}
		}
	}
	if found != len(acked) || len(acked) < 2000 {
		t.Errorf("%d acknowledged, %d of them stored", len(acked), found)
	}
	t.Logf("%d acknowledged, %d not; %d and %d by edge", len(acked), len(unsure), by[0].Load(), by[1].Load())
}

// The program's own edge, ended by a signal under load: it answers what it took and exits with 0.
func TestNATSIngestProgram(t *testing.T) {
	beside(t)
	k := testkit.NATS(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	alone := command(path, "dev", "--nats-ingest", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen",
		"off")
	if out, err := alone.CombinedOutput(); err == nil || !strings.Contains(string(out), "--nats-listen") {
		t.Errorf("dev, whose NATS nobody can reach: %v %s", err, out)
	}
	p := newProc(t, "edge", "--nats", k.Server.ClientURL(), "--nats-ingest", "--level", "warn")
	p.start()
	js := agentOn(t, k)
	var futures []jetstream.PubAckFuture
	send := func(n int) {
		for range n {
			f, err := js.PublishAsync("ingest.acme.run", deltaOf("x"))
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
		}
	}
	send(1)
	if _, err := answerTo(t, futures[0]); err != nil {
		t.Fatal(err)
	}
	send(20_000)
	if err := js.Conn().Flush(); err != nil { // the server has given all of them to the edge
		t.Fatal(err)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for i, f := range futures[1:] {
		if ack, err := answerTo(t, f); err != nil || ack.Sequence != uint64(i+2) {
			t.Fatalf("%d: %+v %v", i, ack, err)
		}
	}
	if n := len(payloads(t, k.Server.ClientURL())["acme/run"]); n != len(futures) {
		t.Errorf("%d stored of %d", n, len(futures))
	}
	if _, err := js.Publish(t.Context(), "ingest.acme.run", deltaOf("x"),
		jetstream.WithRetryAttempts(0)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("without an edge: %v", err)
	}
}

// The rights of docs/nats-ingest.md are what an agent and an edge need, and keep a tenant from another's runs.
func TestNATSIngestRights(t *testing.T) {
	beside(t)
	page, err := os.ReadFile("../../docs/nats-ingest.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), "```\nusers = [")
	block, _, found := strings.Cut(block, "```")
	if !ok || !found {
		t.Fatal("the page has no users")
	}
	conf := t.TempDir() + "/nats.conf"
	text := "port: -1\nlisten: 127.0.0.1:-1\njetstream { store_dir: " + t.TempDir() +
		" }\nauthorization {\nusers = [\n{ user: all, password: all }\n" +
		strings.NewReplacer("$ACME", "acme", "$EDGE", "edge").Replace(block) + "\n}\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	denied := make(chan error, 10)
	dial := func(user string) *nats.Conn {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, user),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	admin, err := jetstream.New(dial("all"))
	if err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), admin, natskit.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	listenOverNATS(t, dial("edge"), edge.Hooks{})
	js, err := jetstream.New(dial("acme"))
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := js.Publish(t.Context(), "ingest.acme.run", deltaOf("x"), jetstream.WithMsgID("a")); err != nil ||
		ack.Sequence != 1 {
		t.Fatalf("%+v %v", ack, err)
	}
	select {
	case err := <-denied:
		t.Fatalf("a right is missing: %v", err)
	default:
	}
	for _, subject := range []string{"ingest.other.run", "agent.0.acme.run.-", "$JS.API.STREAM.PURGE.AGENT_0"} {
		short, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, err := js.Publish(short, subject, deltaOf("x"), jetstream.WithRetryAttempts(0)); err == nil {
			t.Errorf("%s may be published to", subject)
		}
		stop()
		if err := <-denied; !errors.Is(err, nats.ErrPermissionViolation) {
			t.Error(err)
		}
	}
}

// BenchmarkNATSIngest is what one event costs that is published alone, over 50 runs; the client's part and the
// server's are in it.
func BenchmarkNATSIngest(b *testing.B) {
	k := testkit.NATS(b)
	listenOverNATS(b, k.Dial(b), edge.Hooks{})
	js, err := jetstream.New(k.Dial(b), jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		b.Fatal(err)
	}
	subjects := make([]string, 50)
	for i := range subjects {
		subjects[i] = fmt.Sprint("ingest.acme.run_", i)
	}
	body := deltaOf(strings.Repeat("token ", 30))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := js.PublishAsync(subjects[i%len(subjects)], body, jetstream.WithStallWait(10*time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
