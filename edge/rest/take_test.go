package rest_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/schema"
)

// serverBeside returns a server over the house's log, for what comes without HTTP.
func serverBeside(h *edgetest.House, change ...func(*edge.Config)) *edge.Server {
	h.T.Helper()
	cfg := edge.Config{Hub: h.Hub, Appender: h.Appender}
	for _, c := range change {
		c(&cfg)
	}
	s, err := edge.New(cfg)
	if err != nil {
		h.T.Fatal(err)
	}
	return s
}

func postsOf(texts ...string) (posts []producers.Post) {
	for _, b := range texts {
		posts = append(posts, producers.Post{Body: []byte(b)})
	}
	return posts
}

func fate(a producers.Answer) string {
	if r := a.Refusal; r != nil {
		return fmt.Sprintf("%d %d %s: %s", r.Status, r.Number, r.Code, r.Message)
	}
	return fmt.Sprintf("%d-%d of %d, again %v", a.First, a.Last, a.Events, a.Replayed)
}

const (
	aDelta = `{"type":"text.delta","payload":{"text":"a"}}`
	anEnd  = `{"type":"run.lifecycle","payload":{"state":"done"}}`
)

// What is refused over HTTP is refused here with the same status, code and words.
func TestTakeAnswersAsHTTPDoes(t *testing.T) {
	h := edgetest.NewHouse(t)
	s := serverBeside(h, func(c *edge.Config) { c.MaxBodyBytes = 8 << 20 })
	h.Do("POST", "/v1/agent/runs/ended/events", anEnd)
	for name, tt := range map[string]struct {
		run, body string
		status    int
	}{
		"good":          {"run", aDelta, 200},
		"empty":         {"run", "", 400},
		"blank":         {"run", "\n\n", 400},
		"bad JSON":      {"run", aDelta + "\n{", 400},
		"unknown type":  {"run", aDelta + "\n\n" + `{"type":"text.deltas","payload":{}}`, 400},
		"foreign run":   {"run", `{"type":"custom.x","run_id":"other","payload":{}}`, 400},
		"bad event id":  {"run", `{"type":"custom.x","id":"a b","payload":{}}`, 400},
		"schema":        {"run", aDelta + "\n" + `{"type":"plan.proposal","payload":{"steps":7}}`, 400},
		"own seq":       {"run", aDelta + "\n" + `{"type":"text.delta","seq":99,"payload":{"text":"a"}}`, 409},
		"ended":         {"ended", aDelta, 409},
		"ends, goes on": {"other", "[" + anEnd + "," + aDelta + "]", 409},
		"bad run id":    {"a*b", aDelta, 400},
		"lane as run":   {"-", aDelta, 400},
		"large event": {"run", `{"type":"custom.x","payload":{"x":"` + strings.Repeat("x", schema.MaxEventBytes) +
			`"}}`, 413},
		"large body":    {"run", strings.Repeat(" ", 8<<20) + aDelta, 413},
		"two lanes seq": {"new", `[{"type":"text.delta","seq":1,"payload":{"text":"a"}},{"type":"text.delta","child_id":"c","seq":2,"payload":{"text":"a"}}]`, 413},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.StorePosts(t.Context(), edgetest.RunOf(tt.run), postsOf(tt.body), nil)
			if len(got) != 1 {
				t.Fatalf("%d answers", len(got))
			}
			r := got[0].Refusal
			if tt.status == 200 {
				if r != nil || got[0].Events != 1 || got[0].First == 0 || h.Last(tt.run) != got[0].Last {
					t.Fatalf("%s", fate(got[0]))
				}
				return
			}
			over := h.Do("POST", "/v1/agent/runs/"+tt.run+"/events", tt.body)
			p := over.Problem(t)
			if r == nil || r.Status != tt.status || over.Status != tt.status || r.Code != p.Code ||
				r.Message != p.Message || r.Line != p.Line || r.Field != p.Field {
				t.Errorf("%s, over HTTP %s", fate(got[0]), over.Body)
			}
			if r != nil && (r.Number < 20001 || r.Number > 20098) {
				t.Errorf("reason has no number: %d", r.Number)
			}
		})
	}
}

// packsOf counts the packs of a run.
func packsOf(h *edgetest.House, run string) (n int) {
	h.T.Helper()
	for _, err := range h.Log.Since(h.T.Context(), edgetest.RunOf(run), 0) {
		if err != nil {
			h.T.Fatal(err)
		}
		n++
	}
	return n
}

// Posts that come together are stored together, and each has its own numbers.
func TestTakeStoresTogether(t *testing.T) {
	h := edgetest.NewHouse(t)
	events := 0
	s := serverBeside(h, func(c *edge.Config) { c.Hooks.Ingested = func(n int) { events += n } })
	got := s.StorePosts(t.Context(), edgetest.RunOf("run"),
		postsOf(aDelta, aDelta+"\n"+aDelta, "nothing", "["+aDelta+"]", aDelta), make([]producers.Answer, 1))
	var all []string
	for _, a := range got[1:] {
		all = append(all, fate(a))
	}
	want := "1-1 of 1, again false; 2-3 of 2, again false; 400 20001 KAI-STREAM-PROTO-0001: " + got[3].Refusal.Message +
		"; 4-4 of 1, again false; 5-5 of 1, again false"
	if text := strings.Join(all, "; "); text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	if n := packsOf(h, "run"); n != 1 || events != 5 {
		t.Errorf("%d packs, %d events counted", n, events)
	}
	// More than a pack takes.
	many := postsOf(strings.Repeat(aDelta+"\n", schema.MaxPackEvents-1), aDelta, aDelta,
		strings.Repeat(aDelta+"\n", 2*schema.MaxPackEvents), aDelta)
	got = s.StorePosts(t.Context(), edgetest.RunOf("long"), many, nil)
	next := schema.Seq(1)
	for i, a := range got {
		if a.Refusal != nil || a.First != next || int(a.Last-a.First)+1 != a.Events {
			t.Fatalf("post %d: %s, want from %d", i, fate(a), next)
		}
		next = a.Last + 1
	}
	if n := packsOf(h, "long"); n != 5 || int(next) != 3*schema.MaxPackEvents+3 {
		t.Errorf("%d packs, %d is next", n, next)
	}
	large := `{"type":"custom.x","payload":{"x":"` + strings.Repeat("x", 300<<10) + `"}}`
	got = s.StorePosts(t.Context(), edgetest.RunOf("large"), postsOf(large, large, large, aDelta), nil)
	if n := packsOf(h, "large"); n != 2 || fate(got[3]) != "4-4 of 1, again false" {
		t.Errorf("%d packs, %s", n, fate(got[3]))
	}
}

// randomPost returns a post, and how many events it has if it is good.
func randomPost(rnd *rand.Rand, next int) (producers.Post, int) {
	word := strconv.Itoa(rnd.IntN(1e6))
	delta := func(more string) string {
		return `{"type":"text.delta",` + more + `"payload":{"text":"` + word + `"}}`
	}
	switch p := (producers.Post{Body: []byte(delta(""))}); rnd.IntN(16) {
	case 0:
		return producers.Post{Body: []byte(`{"type":"text.delta"`)}, 0
	case 1:
		p.Body = []byte(delta(`"child_id":"kid",`))
		return p, 1
	case 2:
		p.Body = []byte(delta("") + "\n" + delta(`"child_id":"kid",`))
		return p, 2
	case 3:
		p.Keys = []string{"key " + strconv.Itoa(rnd.IntN(3))} // sometimes a repeat with another content
		return p, 1
	case 4:
		p.Body = []byte(delta(`"seq":` + strconv.Itoa(max(1, next-1+rnd.IntN(3))) + `,`))
		return p, 1
	case 5:
		p.Body = []byte(delta("") + "\n" + delta(`"seq":`+strconv.Itoa(next+1)+`,`))
		return p, 2
	case 6:
		if rnd.IntN(3) == 0 {
			p.Body = []byte(anEnd)
		}
		return p, 1
	case 7:
		p.Unserved = "Nats-TTL"
		return p, 0
	case 8:
		p.Body = []byte(strings.Repeat(delta("")+"\n", 1+rnd.IntN(600)))
		return p, strings.Count(string(p.Body), "\n")
	}
	return producers.Post{Body: []byte(delta(""))}, 1
}

// textsOf returns lanes, types, numbers and payloads of a run.
func textsOf(h *edgetest.House, run string) string {
	h.T.Helper()
	var b strings.Builder
	for p, err := range h.Log.Since(h.T.Context(), edgetest.RunOf(run), 0) {
		if err != nil {
			h.T.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				h.T.Fatal(err)
			}
			fmt.Fprintln(&b, p.Child, r.Seq, r.Type, string(r.Payload()))
		}
	}
	return b.String()
}

// A run that cannot be written keeps what came later from being stored without what came earlier.
func TestTakeStopsAtTrouble(t *testing.T) {
	h := edgetest.NewHouse(t)
	s := serverBeside(h, func(c *edge.Config) { c.LogTimeout = 50 * time.Millisecond })
	h.Log.Down.Store(true)
	posts := postsOf(aDelta, "nothing", aDelta, `{"type":"text.delta","child_id":"c","payload":{"text":"a"}}`)
	posts = append(posts, producers.Post{Body: []byte(aDelta), Keys: []string{"k"}})
	got := s.StorePosts(t.Context(), edgetest.RunOf("run"), posts, nil)
	for i, a := range got {
		want := 503
		if i == 1 {
			want = 400
		}
		if a.Refusal == nil || a.Refusal.Status != want || (want == 503) != (a.Refusal.Retry > 0) {
			t.Errorf("post %d: %s", i, fate(a))
		}
	}
	h.Log.Down.Store(false)
	if got = s.StorePosts(t.Context(), edgetest.RunOf("run"), posts[:1],
		got[:0]); fate(got[0]) != "1-1 of 1, again false" {
		t.Errorf("afterwards: %s", fate(got[0]))
	}
}

func TestTakeRepeatsAndConditions(t *testing.T) {
	h := edgetest.NewHouse(t)
	s := serverBeside(h)
	one := func(p producers.Post) string {
		return fate(s.StorePosts(t.Context(), edgetest.RunOf("run"), []producers.Post{p}, nil)[0])
	}
	post := producers.Post{Body: []byte(aDelta), Keys: []string{"k"}}
	if got := one(post) + "; " + one(post); got != "1-1 of 1, again false; 1-1 of 1, again true" {
		t.Error(got)
	}
	over := h.Do("POST", "/v1/agent/runs/run/events", aDelta, "Idempotency-Key", "k") // it is the same key
	if over.Header.Get("Idempotency-Replayed") != "true" || over.Body != `{"first_seq":1,"last_seq":1}`+"\n" {
		t.Errorf("%v %s", over.Header, over.Body)
	}
	post.Body = []byte(`{"type":"text.delta","payload":{"text":"b"}}`)
	if got := one(post); !strings.HasPrefix(got, "422 20009 KEY-REUSED: ") {
		t.Error(got)
	}
	for _, keys := range [][]string{{"a", "b"}, {""}, {strings.Repeat("k", 256)}, {"a\x01"}} {
		if got := one(producers.Post{Body: []byte(aDelta), Keys: keys}); !strings.HasPrefix(got,
			"400 20006 BAD-REQUEST: Nats-Msg-Id must be one value") {
			t.Errorf("%q: %s", keys, got)
		}
	}
	if got := one(producers.Post{Body: []byte(aDelta), Unserved: "Nats-TTL"}); !strings.HasPrefix(got,
		`400 20006 BAD-REQUEST: header "Nats-TTL" is not served`) {
		t.Error(got)
	}
	if h.Last("run") != 1 {
		t.Errorf("%d events", h.Last("run"))
	}
}

// panicking is a log that has a bug.
type panicking struct{ producers.Log }

func (panicking) Append(context.Context, *schema.Pack, uint64) (uint64, error) { panic("a bug") }

func TestTakeOutlivesAPanic(t *testing.T) {
	h := edgetest.NewHouse(t)
	app, err := producers.NewAppender(producers.AppenderConfig{Log: panicking{h.Log}})
	if err != nil {
		t.Fatal(err)
	}
	s := serverBeside(h, func(c *edge.Config) { c.Appender = app })
	for range 2 {
		got := s.StorePosts(t.Context(), edgetest.RunOf("run"), postsOf("nothing", aDelta, aDelta), nil)
		if len(got) != 3 || got[0].Refusal.Status != 400 || fate(got[1]) != "500 20099 INTERNAL: internal error" ||
			fate(got[2]) != fate(got[1]) {
			t.Errorf("%d answers: %s", len(got), fate(got[len(got)-1]))
		}
	}
}

// The numbers of reasons are a promise: the document has the ones that are in use, with status and code.
func TestRefusalNumbersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/nats-ingest.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[int]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (20\\d{3}) \\| (\\d{3}) \\| `([A-Z0-9-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[1])
		documented[n] = m[2] + " " + m[3]
	}
	h := edgetest.NewHouse(t)
	s := serverBeside(h)
	used := map[int]bool{}
	for _, err := range []error{
		schema.ErrMalformed, schema.ErrUnknownType, schema.ErrForeignRun, schema.ErrTooLarge, schema.ErrBadID,
		dialect.ErrBadRequest, schema.ErrSeqMismatch,
		schema.ErrEnded, producers.ErrKeyReused, schema.ErrConflict, schema.ErrUnanswered, producers.ErrBackpressure,
		schema.ErrUnavailable,
		producers.ErrClosed, schema.ErrBadPack, schema.ErrFull, auth.ErrForbidden, schema.ErrKeyGone,
	} {
		r := s.Refusal(fmt.Errorf("test: %w", err))
		if got := fmt.Sprintf("%d %s", r.Status, r.Code); documented[r.Number] != got || used[r.Number] {
			t.Errorf("%v: %d is %s, documented as %s", err, r.Number, got, cmp.Or(documented[r.Number], "nothing"))
		}
		used[r.Number] = true
	}
	none := serverBeside(h, func(c *edge.Config) { c.IngestLimit.Events = 1 })
	r := none.StorePosts(t.Context(), edgetest.RunOf("run"), postsOf(aDelta, aDelta), nil)[1].Refusal
	if got := fmt.Sprintf("%d %s", r.Status, r.Code); documented[r.Number] != got || used[r.Number] {
		t.Errorf("over a limit: %d is %s, documented as %s", r.Number, got, documented[r.Number])
	}
	used[r.Number] = true
	if len(used) != len(documented) {
		t.Errorf("%d numbers in use, %d documented", len(used), len(documented))
	}
}
