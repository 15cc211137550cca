package edge_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// gatedLog asks before each append to JetStream.
type gatedLog struct {
	producers.Log
	before func(n int32) error
	n      atomic.Int32
}

func (g *gatedLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if g.before != nil {
		if err := g.before(g.n.Add(1)); err != nil {
			return 0, err
		}
	}
	return g.Log.Append(ctx, p, after)
}

// nodeOn is an edge over JetStream, with idempotency keys, that knows nothing of others.
func nodeOn(t testing.TB, k *testkit.Server, before func(n int32) error, change ...func(*edge.Config)) *house {
	t.Helper()
	return nodeWith(t, k, &gatedLog{before: before}, nil, change...)
}

// nodeWith is nodeOn with a log of its own making, which gets JetStream, and an archive; nil: none.
func nodeWith(t testing.TB, k *testkit.Server, gated *gatedLog, archive *shelved, change ...func(*edge.Config)) *house {
	t.Helper()
	nc := k.Dial(t)
	writer, err := pubjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pubjs.OpenKeys(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := fanjs.Open(t.Context(), k.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	read := fanout.Config{Stream: reader, Tail: reader}
	gated.Log = writer
	write := producers.AppenderConfig{Log: gated, Keys: keys}
	if archive != nil {
		read.Archive, write.Archive, write.Parent, write.Log = archive, archive, archive.Parent, shelving{gated, t, archive}
	}
	hub, err := fanout.New(read)
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(write)
	if err != nil {
		t.Fatal(err)
	}
	cfg := edge.Config{Hub: hub, Appender: app, Authenticate: byHeader}
	for _, c := range change {
		c(&cfg)
	}
	srv, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	complaints := &syncBuffer{}
	ts := httptest.NewUnstartedServer(srv.Handler())
	ts.Config.ErrorLog = log.New(complaints, "", 0)
	ts.Start()
	t.Cleanup(func() {
		ts.Close()
		if s := complaints.String(); strings.Contains(s, "superfluous") {
			t.Errorf("the HTTP server complains: %s", s)
		}
	})
	return &house{t: t, url: ts.URL, client: http.DefaultClient, srv: srv, app: app}
}

// large is a body that takes several packs: n texts of the run, then n of a child.
func large(n int) string {
	var b strings.Builder
	for i := range 2 * n {
		child := ""
		if i >= n {
			child = `,"child_id":"kid"`
		}
		fmt.Fprintf(&b, `{"type":"text.delta"%s,"payload":{"text":"%d"}}`+"\n", child, i)
	}
	return b.String()
}

// stored are the texts of a run, read page by page.
func (h *house) stored(run string) (texts []string) {
	h.t.Helper()
	for line := range strings.Lines(h.do("GET", "/v1/agent/runs/"+run+"/replay.jsonl", "").body) {
		if _, rest, ok := strings.Cut(line, `"payload":{"text":"`); ok {
			texts = append(texts, strings.TrimSuffix(rest, "\"}}\n"))
		}
	}
	return texts
}

// numberedTexts says that texts are 0, 1, 2 … n-1.
func numberedTexts(texts []string, n int) error {
	for i, s := range texts {
		if s != fmt.Sprint(i) {
			return fmt.Errorf("text %d is %q", i, s)
		}
	}
	if len(texts) != n {
		return fmt.Errorf("%d texts, want %d", len(texts), n)
	}
	return nil
}

// identical compares two answers but for what names the request.
func identical(a, b answer) error {
	strip := func(h http.Header) string {
		h = h.Clone()
		for _, name := range []string{"X-Request-Id", "Date", "Idempotency-Replayed"} {
			h.Del(name)
		}
		return fmt.Sprint(h)
	}
	if a.status != b.status || a.body != b.body || strip(a.header) != strip(b.header) {
		return fmt.Errorf("%d %v %s, and %d %v %s", a.status, a.header, a.body, b.status, b.header, b.body)
	}
	return nil
}

// One request arrives many times at once, at two nodes: it is stored once, one answer is that of who stored it,
// and the others are the same but for saying so.
func TestKeyedPostsAtOnceAtTwoNodes(t *testing.T) {
	k := testkit.NATS(t)
	nodes := []*house{nodeOn(t, k, nil), nodeOn(t, k, nil)}
	for round := range 4 {
		path := fmt.Sprintf("/v1/agent/runs/run_%d/events", round)
		answers := make([]answer, 12)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = nodes[i%2].do("POST", path, large(1500), "Idempotency-Key", "k") })
		}
		wg.Wait()
		first := 0
		for _, a := range answers {
			if err := identical(answers[0], a); err != nil || a.status != 200 {
				t.Fatalf("%d: %v", a.status, err)
			}
			if a.header.Get("Idempotency-Replayed") == "" {
				first++
			}
		}
		if first != 1 || answers[0].header.Get("Etag") != `"3000"` {
			t.Errorf("%d answers are not said to be a repeat's; %v", first, answers[0].header)
		}
		if err := numberedTexts(nodes[0].stored(fmt.Sprint("run_", round)), 3000); err != nil {
			t.Error(err)
		}
	}
}

// A node can store nothing more after its first pack. Its answer says what is stored; another node completes the
// batch, and answers as it will from then on.
func TestLogIsLostBetweenPacks(t *testing.T) {
	k := testkit.NATS(t)
	lost := nodeOn(t, k, func(n int32) error {
		if n > 1 {
			return schema.ErrUnavailable
		}
		return nil
	}, func(c *edge.Config) { c.LogTimeout = 200 * time.Millisecond })
	well := nodeOn(t, k, nil)
	const path = "/v1/agent/runs/run/events"
	a := lost.do("POST", path, large(1500), "Idempotency-Key", "k")
	if p := a.expect(t, 503, "UNANSWERED"); p.Stored != 1024 || !strings.Contains(p.Message, "first 1024 of 3000 events are stored") || a.header.Get("Retry-After") != "1" {
		t.Errorf("%+v %v", p, a.header)
	}
	if err := numberedTexts(well.stored("run"), 1024); err != nil {
		t.Error(err)
	}
	again := well.do("POST", path, large(1500), "Idempotency-Key", "k")
	if again.status != 200 || again.body != `{"first_seq":1,"last_seq":3000}`+"\n" || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s", again.status, again.body)
	}
	if err := numberedTexts(well.stored("run"), 3000); err != nil {
		t.Error(err)
	}
	well.do("POST", path, good) // the run goes on
	if err := identical(again, nodeOn(t, k, nil).do("POST", path, large(1500), "Idempotency-Key", "k")); err != nil {
		t.Error(err)
	}
}

// Another writer ends the run between two packs. The answer is final, says what is stored and names the line, at
// every node; a post over NATS is told as much.
func TestRunEndsBetweenPacksOfAPost(t *testing.T) {
	k := testkit.NATS(t)
	well := nodeOn(t, k, nil)
	ends := func(run string) *house {
		return nodeOn(t, k, func(n int32) error {
			if n == 2 {
				well.do("POST", "/v1/agent/runs/"+run+"/events", anEnd)
			}
			return nil
		})
	}
	for i, h := range []*house{ends("run"), well} {
		p := h.do("POST", "/v1/agent/runs/run/events", "\n\n"+large(1500), "Idempotency-Key", "k").expect(t, 409, "RUN-ENDED")
		if p.Stored != 1024 || p.Line != 1027 {
			t.Errorf("node %d: %+v", i, p)
		}
	}
	if err := numberedTexts(well.stored("run"), 1024); err != nil {
		t.Error(err)
	}
	answers := ends("taken").srv.Take(t.Context(), runOf("taken"), postsOf("\n\n"+large(1500)), nil)
	if r := answers[0].Refusal; r == nil || r.Status != 409 || r.Line != 1027 || !strings.HasPrefix(r.Message, "the first 1024 of 3000 events are stored") {
		t.Errorf("%s", fate(answers[0]))
	}
}

// Agentstream-Atomic refuses what is not one pack, stores nothing of it, and takes what is.
func TestAtomicIsOnePack(t *testing.T) {
	h := newHouse(t)
	post := func(body string) answer {
		return h.do("POST", "/v1/agent/runs/run/events", body, "Agentstream-Atomic", "true")
	}
	spawn := `{"type":"child.spawn","payload":{"child_id":"kid"}}` + "\n"
	first := `{"type":"text.delta","child_id":"kid","payload":{"text":"a"}}`
	for _, body := range []string{strings.Repeat(good+"\n", 1025), spawn + first, strings.Repeat(`{"type":"text.delta","payload":{"text":"`+strings.Repeat("x", 400<<10)+`"}}`+"\n", 2)} {
		post(body).expect(t, 413, schema.CodeMalformed)
	}
	if h.last("run") != 0 {
		t.Errorf("%d events are stored", h.last("run"))
	}
	if a := post(strings.Repeat(good+"\n", 1024)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := h.do("POST", "/v1/agent/runs/run/events", spawn+first, "Agentstream-Atomic", "false"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A refusal is not remembered under a key: the same request is taken once the reason for it is gone. Another
// content is not.
func TestRefusalsAreNotReplayed(t *testing.T) {
	h := newHouse(t)
	h.do("POST", "/v1/agent/runs/run/events", anEnd)
	post := func(body string, headers ...string) answer {
		return h.do("POST", "/v1/agent/runs/run/events", body, append(headers, "Idempotency-Key", "k")...)
	}
	post(good).expect(t, 409, "RUN-ENDED")
	h.do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"running"}}`)
	post(good, "If-Match", `"1"`).expect(t, 412, "PRECONDITION-FAILED")
	post(aDelta+"\n"+good, "If-Match", `"2"`).expect(t, 422, "KEY-REUSED")
	a := post(good, "If-Match", `"2"`)
	if a.status != 200 || a.header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// The condition of a repeat was met when it was stored.
	if again := post(good, "If-Match", `"2"`); again.header.Get("Idempotency-Replayed") != "true" || identical(a, again) != nil {
		t.Errorf("%v", identical(a, again))
	}
}
