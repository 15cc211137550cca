package rest_test

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
	"agentstream/edge/edgetest"
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
func nodeOn(t testing.TB, k *testkit.Server, before func(n int32) error, change ...func(*edge.Config)) *edgetest.House {
	t.Helper()
	return nodeWith(t, k, &gatedLog{before: before}, nil, change...)
}

// nodeWith is nodeOn with a log of its own making, which gets JetStream, and an archive; nil: none.
func nodeWith(t testing.TB, k *testkit.Server, gated *gatedLog, archive *shelved,
	change ...func(*edge.Config)) *edgetest.House {
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
	cfg := edge.Config{Hub: hub, Appender: app, Authenticate: edgetest.ByTenant}
	for _, c := range change {
		c(&cfg)
	}
	srv, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	complaints := &edgetest.SyncBuffer{}
	ts := httptest.NewUnstartedServer(srv.Handler())
	ts.Config.ErrorLog = log.New(complaints, "", 0)
	ts.Start()
	t.Cleanup(func() {
		ts.Close()
		if s := complaints.String(); strings.Contains(s, "superfluous") {
			t.Errorf("the HTTP server complains: %s", s)
		}
	})
	return &edgetest.House{T: t, URL: ts.URL, Client: http.DefaultClient, Server: srv, Appender: app}
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

// storedTexts are the texts of a run, read page by page.
func storedTexts(h *edgetest.House, run string) (texts []string) {
	h.T.Helper()
	for line := range strings.Lines(h.Do("GET", "/v1/agent/runs/"+run+"/replay.jsonl", "").Body) {
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
func identical(a, b edgetest.Reply) error {
	strip := func(h http.Header) string {
		h = h.Clone()
		for _, name := range []string{"X-Request-Id", "Date", "Idempotency-Replayed"} {
			h.Del(name)
		}
		return fmt.Sprint(h)
	}
	if a.Status != b.Status || a.Body != b.Body || strip(a.Header) != strip(b.Header) {
		return fmt.Errorf("%d %v %s, and %d %v %s", a.Status, a.Header, a.Body, b.Status, b.Header, b.Body)
	}
	return nil
}

// One request arrives many times at once, at two nodes: it is stored once, one answer is that of who stored it,
// and the others are the same but for saying so.
func TestKeyedPostsAtOnceAtTwoNodes(t *testing.T) {
	k := testkit.NATS(t)
	nodes := []*edgetest.House{nodeOn(t, k, nil), nodeOn(t, k, nil)}
	for round := range 4 {
		path := fmt.Sprintf("/v1/agent/runs/run_%d/events", round)
		answers := make([]edgetest.Reply, 12)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = nodes[i%2].Do("POST", path, large(1500), "Idempotency-Key", "k") })
		}
		wg.Wait()
		first := 0
		for _, a := range answers {
			if err := identical(answers[0], a); err != nil || a.Status != 200 {
				t.Fatalf("%d: %v", a.Status, err)
			}
			if a.Header.Get("Idempotency-Replayed") == "" {
				first++
			}
		}
		if first != 1 || answers[0].Header.Get("Etag") != `"3000"` {
			t.Errorf("%d answers are not said to be a repeat's; %v", first, answers[0].Header)
		}
		if err := numberedTexts(storedTexts(nodes[0], fmt.Sprint("run_", round)), 3000); err != nil {
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
	}, func(c *edge.Config) { c.LogTimeout = 2 * time.Second })
	well := nodeOn(t, k, nil)
	const path = "/v1/agent/runs/run/events"
	a := lost.Do("POST", path, large(1500), "Idempotency-Key", "k")
	if p := a.Expect(t, 503, "UNANSWERED"); p.Stored != 1024 ||
		!strings.Contains(p.Message, "first 1024 of 3000 events are stored") || a.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v %v", p, a.Header)
	}
	if err := numberedTexts(storedTexts(well, "run"), 1024); err != nil {
		t.Error(err)
	}
	again := well.Do("POST", path, large(1500), "Idempotency-Key", "k")
	if again.Status != 200 || again.Body != `{"first_seq":1,"last_seq":3000}`+"\n" ||
		again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	if err := numberedTexts(storedTexts(well, "run"), 3000); err != nil {
		t.Error(err)
	}
	well.Do("POST", path, edgetest.GoodLine) // the run goes on
	if err := identical(again, nodeOn(t, k, nil).Do("POST", path, large(1500), "Idempotency-Key", "k")); err != nil {
		t.Error(err)
	}
}

// Another writer ends the run between two packs. The answer is final, says what is stored and names the line, at
// every node; a post over NATS is told as much.
func TestRunEndsBetweenPacksOfAPost(t *testing.T) {
	k := testkit.NATS(t)
	well := nodeOn(t, k, nil)
	ends := func(run string) *edgetest.House {
		return nodeOn(t, k, func(n int32) error {
			if n == 2 {
				well.Do("POST", "/v1/agent/runs/"+run+"/events", anEnd)
			}
			return nil
		})
	}
	for i, h := range []*edgetest.House{ends("run"), well} {
		p := h.Do("POST", "/v1/agent/runs/run/events", "\n\n"+large(1500), "Idempotency-Key", "k").Expect(t, 409, "RUN-ENDED")
		if p.Stored != 1024 || p.Line != 1027 {
			t.Errorf("node %d: %+v", i, p)
		}
	}
	if err := numberedTexts(storedTexts(well, "run"), 1024); err != nil {
		t.Error(err)
	}
	answers := ends("taken").Server.StorePosts(t.Context(), edgetest.RunOf("taken"), postsOf("\n\n"+large(1500)), nil)
	if r := answers[0].Refusal; r == nil || r.Status != 409 || r.Line != 1027 ||
		!strings.HasPrefix(r.Message, "the first 1024 of 3000 events are stored") {
		t.Errorf("%s", fate(answers[0]))
	}
}

// Agentstream-Atomic refuses what is not one pack, stores nothing of it, and takes what is.
func TestAtomicIsOnePack(t *testing.T) {
	h := edgetest.NewHouse(t)
	post := func(body string) edgetest.Reply {
		return h.Do("POST", "/v1/agent/runs/run/events", body, "Agentstream-Atomic", "true")
	}
	spawn := `{"type":"child.spawn","payload":{"child_id":"kid"}}` + "\n"
	first := `{"type":"text.delta","child_id":"kid","payload":{"text":"a"}}`
	for _, body := range []string{strings.Repeat(edgetest.GoodLine+"\n", 1025), spawn + first,
		strings.Repeat(`{"type":"text.delta","payload":{"text":"`+strings.Repeat("x", 400<<10)+`"}}`+"\n", 2)} {
		post(body).Expect(t, 413, schema.CodeMalformed)
	}
	if h.Last("run") != 0 {
		t.Errorf("%d events are stored", h.Last("run"))
	}
	if a := post(strings.Repeat(edgetest.GoodLine+"\n", 1024)); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := h.Do("POST", "/v1/agent/runs/run/events", spawn+first, "Agentstream-Atomic", "false"); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A refusal is not remembered under a key: the same request is taken once the reason for it is gone. Another
// content is not.
func TestRefusalsAreNotReplayed(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Do("POST", "/v1/agent/runs/run/events", anEnd)
	post := func(body string, headers ...string) edgetest.Reply {
		return h.Do("POST", "/v1/agent/runs/run/events", body, append(headers, "Idempotency-Key", "k")...)
	}
	post(edgetest.GoodLine).Expect(t, 409, "RUN-ENDED")
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"running"}}`)
	post(edgetest.GoodLine, "If-Match", `"1"`).Expect(t, 412, "PRECONDITION-FAILED")
	post(aDelta+"\n"+edgetest.GoodLine, "If-Match", `"2"`).Expect(t, 422, "KEY-REUSED")
	a := post(edgetest.GoodLine, "If-Match", `"2"`)
	if a.Status != 200 || a.Header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	// The condition of a repeat was met when it was stored.
	if again := post(edgetest.GoodLine, "If-Match", `"2"`); again.Header.Get("Idempotency-Replayed") != "true" ||
		identical(a, again) != nil {
		t.Errorf("%v", identical(a, again))
	}
}
