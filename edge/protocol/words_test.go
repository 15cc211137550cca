package protocol_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a small protocol: a frame of each record, in spans from turn.start to turn.end.
type echo struct{ made *atomic.Int64 } // frames; nil: they are not counted

func (echo) Info() dialect.Info { return dialect.Info{Name: "echo"} }

func (echo) Open(in dialect.Input) (dialect.Request, error) {
	req := dialect.Request{Run: in.Path["run"], Stream: in.Stream, Span: in.Query.Get("span"),
		Newest: in.Query.Has("newest"), Await: in.Query.Has("await")}
	if req.Span == "newest" {
		req.Span = dialect.SpanNewest
	}
	req.Cursor.Frames, _ = strconv.Atoi(in.Query.Get("have"))
	return req, schema.ValidRunID(req.Run)
}

func (e echo) Projector(req dialect.Request) dialect.Projector {
	return (&echoes{made: e.made}).For(req)
}
func (echo) AppendError(dst []byte, p dialect.Problem) []byte {
	return fmt.Appendf(dst, `{"error":%q}`, p.Code)
}

type echoes struct {
	made  *atomic.Int64
	req   dialect.Request
	spans dialect.Spans
	now   string
	n     int // records
}

func (p *echoes) For(req dialect.Request) dialect.Stateful {
	return &echoes{p.made, req, p.spans.Clone(), p.now, p.n}
}
func (p *echoes) Size() int                             { return 64 + p.spans.Size() }
func (p *echoes) Admit(dialect.Request) error           { return nil }
func (p *echoes) Span(req dialect.Request) dialect.Span { return p.spans.Find(req.Span) }

func (p *echoes) Project(out *dialect.Frames, r schema.Record) error {
	p.n++
	if string(r.Type) == schema.TypeTurnStart {
		p.now = fmt.Sprintf("turn%d", r.Seq)
		p.spans.Begin(p.now, r.Seq)
	}
	of, ends := p.now, string(r.Type) == schema.TypeTurnEnd
	if ends {
		p.spans.End(p.now, r.Seq)
		p.now = ""
	}
	if out == nil || p.req.Span != "" && of != p.req.Span {
		return nil
	}
	if p.made != nil {
		p.made.Add(1)
	}
	out.Add(dialect.Frame{Data: fmt.Appendf(nil, `{"seq":%d,"of":%q}`, r.Seq, of)})
	if ends && p.req.Span != "" {
		out.Add(dialect.Frame{Data: []byte("[DONE]"), Last: true})
	}
	return nil
}

// spoken is the protocol with a stream and a route on the same paths.
func spoken(change func(p *protocol.Protocol)) protocol.Protocol {
	object := func(c *protocol.Call) error {
		body := []byte("null")
		if c.Request.ContentLength != 0 {
			var err error
			if body, err = c.Message(); err != nil {
				return err
			}
		}
		return c.ReplyJSON(map[string]any{"run": c.Path("run"), "said": json.RawMessage(body)})
	}
	st := func(name, pattern string) dialect.Stream {
		return dialect.Stream{Name: name, Pattern: pattern, Transport: dialect.SSE, Mode: dialect.ModeB, Shared: true}
	}
	p := protocol.Protocol{Dialect: echo{}, Below: []string{"/echo"}}
	p.Streams = []protocol.Stream{
		{Stream: st("whole", "GET /echo/{run}")},
		{Stream: st("asked", "GET /echo/{run}/thing"), Asked: func(in dialect.Input) bool {
			return in.Query.Get("stream") == "true" || protocol.IsStreamAccepted(in)
		}},
		{Stream: st("posted", "POST /echo/{run}/thing"), Asked: bodyAsks},
		{Stream: st("got", "GET /echo/{run}/got"), Asked: bodyAsks},
	}
	for i := range p.Streams[2:] {
		p.Streams[2+i].Body = []string{"application/json"}
	}
	for _, pattern := range []string{"GET /echo/{run}/thing", "POST /echo/{run}/thing", "GET /echo/{run}/got"} {
		p.Routes = append(p.Routes, protocol.Route{Pattern: pattern, Needs: auth.ScopeRead, Serve: object})
	}
	if change != nil {
		change(&p)
	}
	return p
}

// bodyAsks reports whether a request wants a stream by its query or its body, as an SDK has it that sends a body with a
// GET.
func bodyAsks(in dialect.Input) bool {
	var b struct{ Stream bool }
	return in.Query.Get("stream") == "true" || json.Unmarshal(in.Body, &b) == nil && b.Stream
}

func running(t *testing.T, n *edgetest.Node, run string) {
	t.Helper()
	n.Say(run, edgetest.Event(schema.TypeRunLifecycle, `{"state":"running"}`))
}

// turn stores a turn.
func turn(n *edgetest.Node, run, id string) {
	n.Say(run, edgetest.Event(schema.TypeTurnStart, `{"turn_id":"`+id+`"}`),
		edgetest.Event(schema.TypeTurnEnd, `{"turn_id":"`+id+`","stop_reason":"end_turn"}`))
}

// lines is an open stream.
type lines struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

func open(t *testing.T, n *edgetest.Node, method, path, body string, headers ...string) *lines {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := n.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &lines{t, resp, bufio.NewReader(resp.Body)}
}

// want reads data and comments, and compares them.
func (l *lines) want(list ...string) {
	l.t.Helper()
	for _, want := range list {
		got := ""
		for got == "" {
			line, err := l.in.ReadString('\n')
			if err != nil {
				l.t.Fatalf("%v, want %s", err, want)
			}
			if strings.HasPrefix(line, "data: ") || strings.HasPrefix(line, ":") && !strings.Contains(line, "keepalive") {
				got = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
			}
		}
		if got != want {
			l.t.Fatalf("%s, want %s", got, want)
		}
	}
}

// expectEnd fails the test unless the body ends whole after these.
func (l *lines) expectEnd(list ...string) {
	l.t.Helper()
	l.want(list...)
	if rest, err := io.ReadAll(l.in); err != nil || strings.Contains(string(rest), "data:") {
		l.t.Fatalf("%q, %v instead of the end", rest, err)
	}
}

// TestAsked: one path answers with a stream or an object, as the query, the body or Accept asks, whoever sends it how.
func TestAsked(t *testing.T) {
	n := edgetest.Share().Start(t, spoken(nil))
	n.Say("run", edgetest.Event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`))
	const frame, asks, not = `{"seq":1,"of":""}`, `{"stream":true}`, `{"stream":false,"x":[1]}`
	for _, tt := range []struct {
		method, path, body string
		stream             bool
		headers            []string
	}{
		{"GET", "/echo/run/thing", "", false, nil},
		{"GET", "/echo/run/thing", "", false, []string{"Accept", "application/json"}},
		{"GET", "/echo/run/thing", "", false, []string{"Accept", "*/*"}},
		{"GET", "/echo/run/thing", "", true, []string{"Accept", "application/json, text/event-stream;q=0.9"}},
		{"GET", "/echo/run/thing?stream=true", "", true, []string{"Accept", "application/json"}},
		{"GET", "/echo/run/thing?stream=false", "", false, nil},
		{"POST", "/echo/run/thing", asks, true, []string{"Content-Type", "application/json"}},
		{"POST", "/echo/run/thing", not, false, []string{"Content-Type", "application/json"}},
		{"POST", "/echo/run/thing?stream=true", not, true, []string{"Content-Type", "application/json"}},
		{"POST", "/echo/run/thing", asks, true, nil}, // without a type
		{"GET", "/echo/run/got", asks, true, nil},
		{"GET", "/echo/run/got", not, false, nil},
		{"GET", "/echo/run/got?stream=true", "", true, nil},
		{"GET", "/echo/run/got", "", false, nil},
	} {
		l := open(t, n, tt.method, tt.path, tt.body, tt.headers...)
		if kind := l.resp.Header.Get("Content-Type"); l.resp.StatusCode != 200 || (kind == "text/event-stream") != tt.stream {
			t.Errorf("%s %s %s %v: %d %s", tt.method, tt.path, tt.body, tt.headers, l.resp.StatusCode, kind)
			continue
		}
		if tt.stream {
			l.expectEnd(frame)
			continue
		}
		var got struct{ Said json.RawMessage }
		if err := json.NewDecoder(l.in).Decode(&got); err != nil || string(got.Said) != cmpOr(tt.body, "null") {
			t.Errorf("%s %s: the route reads %s of %s: %v", tt.method, tt.path, got.Said, tt.body, err)
		}
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/echo/run/thing", `{`, 200}, // malformed bodies go to the route, which repeats this one
		{"POST", "/echo/run/thing", strings.Repeat("x", 9<<20), 413},
		{"PUT", "/echo/run/thing", "", 405},
		{"GET", "/echo/none/thing?stream=true", "", 404},
		{"GET", "/echo/run/thing?stream=%zz", "", 200}, // the route reads no query
	} {
		if a := n.Do(tt.method, tt.path, tt.body); a.Status != tt.status && !(tt.body == "{" && a.Status == 500) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.Status, a.Body)
		}
	}
	if a := n.Do("POST", "/echo/run/thing", "x", "Content-Type", "text/html"); a.Status != 415 {
		t.Errorf("another type: %d", a.Status)
	}
	if a := n.Do("GET", "/echo/run/thing?stream=true", "", edgetest.As, "nobody:"); a.Status != 401 {
		t.Errorf("nobody: %d", a.Status)
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// TestAskedIsChecked: what cannot be decided is refused when the server is made.
func TestAskedIsChecked(t *testing.T) {
	for name, change := range map[string]func(p *protocol.Protocol){
		"no route":     func(p *protocol.Protocol) { p.Routes = nil },
		"other scopes": func(p *protocol.Protocol) { p.Streams[2].Needs = auth.ScopeCommand },
		"two streams":  func(p *protocol.Protocol) { p.Streams = append(p.Streams, p.Streams[1]) },
		"other names":  func(p *protocol.Protocol) { p.Streams[1].Pattern = "GET /echo/{thread}/thing" },
		"a socket":     func(p *protocol.Protocol) { p.Streams[1].Transport = dialect.WebSocket },
	} {
		if err := edgetest.Share().Check(spoken(change)); err == nil {
			t.Error(name)
		}
	}
	if err := edgetest.Share().Check(spoken(nil)); err != nil {
		t.Error(err)
	}
}

// TestPrelude: what one request says, and what the run is at the seam, make the frames that its stream begins with; all
// else is projected once for everybody.
func TestPrelude(t *testing.T) {
	var failed atomic.Bool
	var made atomic.Int64
	n := edgetest.Share().Start(t, spoken(func(p *protocol.Protocol) {
		p.Dialect = echo{&made}
		p.Streams[0].Prelude = func(c *protocol.Call, at protocol.Seam) (list []dialect.Frame, err error) {
			if failed.Load() {
				return nil, dialect.Refuse(dialect.ErrGone, "not now")
			}
			fold, err := c.Snapshot(c.Context(), at.Request.Run, at.After)
			if at.After == 0 {
				fold, err = schema.Event{}, nil
			}
			state := at.State.(*echoes)
			list = append(list, dialect.Frame{Data: fmt.Appendf(nil,
				`{"for":%q,"after":%d,"last":%d,"fed":%d,"fold":%d,"state":%q}`,
				at.Input.Query.Get("for"), at.After, at.Last, state.n, fold.Seq, schema.Field(fold.Payload, "state"))})
			return append(list, dialect.Frame{Comment: true, Data: []byte("begins")}), err
		}
		p.Streams[0].CaughtUp = func(last schema.Seq) dialect.Frame {
			return dialect.Frame{Data: fmt.Appendf(nil, `{"caught_up":%d}`, last)}
		}
	}))
	running(t, n, "run")
	turn(n, "run", "a")
	var all []*lines
	for _, name := range []string{"ann", "bob", "eve"} {
		l := open(t, n, "GET", "/echo/run?newest&for="+name, "")
		l.want(`{"for":"`+name+`","after":3,"last":3,"fed":3,"fold":3,"state":"\"running\""}`, ": begins", `{"caught_up":3}`)
		all = append(all, l)
	}
	seq := 3
	edgetest.Eventually(t, "a record is projected once for all", func() bool {
		before := made.Load()
		seq++
		n.Say("run", edgetest.Event(schema.TypeProgress, `{"done":1}`))
		for _, l := range all {
			l.want(fmt.Sprintf(`{"seq":%d,"of":""}`, seq))
		}
		return made.Load()-before == 1
	})
	n.Say("run", edgetest.Event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`))
	last := fmt.Sprintf(`{"seq":%d,"of":""}`, seq+1)
	for _, l := range all {
		l.expectEnd(last)
	}
	whole := open(t, n, "GET", "/echo/run", "")
	whole.want(fmt.Sprintf(`{"for":"","after":0,"last":%d,"fed":0,"fold":0,"state":""}`, seq+1), ": begins",
		`{"seq":1,"of":""}`,
		`{"seq":2,"of":"turn2"}`, `{"seq":3,"of":"turn2"}`)
	for i := 4; i <= seq+1; i++ {
		whole.want(fmt.Sprintf(`{"seq":%d,"of":""}`, i))
	}
	whole.expectEnd(fmt.Sprintf(`{"caught_up":%d}`, seq+1))
	failed.Store(true)
	if a := n.Do("GET", "/echo/run?newest", ""); a.Status != 409 {
		t.Errorf("a prelude that cannot be made: %d %s", a.Status, a.Body)
	}
}

// TestCaughtUpOfARunToCome: a stream of a run that is not there has everything at once.
func TestCaughtUpOfARunToCome(t *testing.T) {
	n := edgetest.Share().Start(t, spoken(func(p *protocol.Protocol) {
		p.Streams[0].CaughtUp = func(last schema.Seq) dialect.Frame {
			return dialect.Frame{Comment: true, Data: fmt.Appendf(nil, "up to %d", last)}
		}
	}))
	l := open(t, n, "GET", "/echo/later?await", "")
	l.want(": up to 0")
	n.Say("later", edgetest.Event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`))
	l.expectEnd(`{"seq":1,"of":""}`)
}

// TestSpanNewest: the newest span of a run is streamed from its first record, whichever it is, to its end, and what
// comes later is another stream's. A text that is no JSON ends it.
func TestSpanNewest(t *testing.T) {
	n := edgetest.Share().Start(t, spoken(nil))
	running(t, n, "run")
	if a := n.Do("GET", "/echo/run?span=newest", ""); a.Status != 204 {
		t.Errorf("a run without spans: %d %s", a.Status, a.Body)
	}
	turn(n, "run", "a")
	first := []string{`{"seq":2,"of":"turn2"}`, `{"seq":3,"of":"turn2"}`, "[DONE]"}
	open(t, n, "GET", "/echo/run?span=newest", "").expectEnd(first...)
	n.Say("run", edgetest.Event(schema.TypeTurnStart, `{"turn_id":"b"}`))
	a, b := open(t, n, "GET", "/echo/run?span=newest", ""), open(t, n, "GET", "/echo/run?span=turn4", "")
	for _, l := range []*lines{a, b} {
		l.want(`{"seq":4,"of":"turn4"}`)
	}
	n.Say("run", edgetest.Event(schema.TypeTurnEnd, `{"turn_id":"b","stop_reason":"end_turn"}`))
	turn(n, "run", "c")
	for _, l := range []*lines{a, b} {
		l.expectEnd(`{"seq":5,"of":"turn4"}`, "[DONE]")
	}
	open(t, n, "GET", "/echo/run?span=newest", "").expectEnd(`{"seq":6,"of":"turn6"}`, `{"seq":7,"of":"turn6"}`, "[DONE]")
	open(t, n, "GET", "/echo/run?span=turn2", "").expectEnd(first...)
	if a := n.Do("GET", "/echo/run?span=none", ""); a.Status != 404 {
		t.Errorf("a span that is not there: %d", a.Status)
	}
}

// TestCountedFrames: a client that has so many frames of a span goes on with the next one, also in the middle of a
// record, while the span goes on and after it, on any node.
func TestCountedFrames(t *testing.T) {
	all := edgetest.Share()
	n, other := all.Start(t, spoken(nil)), all.Start(t, spoken(nil))
	running(t, n, "run")
	n.Say("run", edgetest.Event(schema.TypeTurnStart, `{"turn_id":"a"}`))
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf(`{"seq":%d,"of":"turn2"}`, i+2))
		n.Say("run", edgetest.Event(schema.TypeProgress, `{"done":1}`))
	}
	begun := open(t, other, "GET", "/echo/run?span=newest&have=20", "")
	begun.want(`{"seq":22,"of":"turn2"}`)
	n.Say("run", edgetest.Event(schema.TypeTurnEnd, `{"turn_id":"a","stop_reason":"end_turn"}`))
	last := []string{`{"seq":22,"of":"turn2"}`, `{"seq":23,"of":"turn2"}`, "[DONE]"}
	begun.expectEnd(last[1:]...)
	want = append(want, last...)
	for have := 1; have < len(want); have++ {
		for i, n := range []*edgetest.Node{n, other} {
			open(t, n, "GET", fmt.Sprintf("/echo/run?span=%s&have=%d", []string{"newest", "turn2"}[i], have),
				"").expectEnd(want[have:]...)
		}
	}
	for query, status := range map[string]int{"span=newest&have=23": 204, "span=newest&have=24": 409, "have=24": 409} {
		if a := n.Do("GET", "/echo/run?"+query, ""); a.Status != status {
			t.Errorf("%s: %d %s", query, a.Status, a.Body)
		}
	}
}

// waiting is a route that waits for a record after one.
func waiting(change func(c *protocol.Call) (context.Context, context.CancelFunc)) protocol.Protocol {
	return spoken(func(p *protocol.Protocol) {
		p.Routes = append(p.Routes, protocol.Route{Pattern: "GET /echo/{run}/wait/{after}", Needs: auth.ScopeRead,
			Serve: func(c *protocol.Call) error {
				after, err := schema.ParseCursor(c.Path("after"))
				if err != nil {
					return err
				}
				ctx, cancel := change(c)
				defer cancel()
				head, err := c.Wait(ctx, c.Path("run"), after)
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					return c.ReplyJSON("nothing")
				case err != nil:
					return err
				}
				return c.ReplyJSON(head.Last)
			}})
	})
}

// TestWait: a call waits for something newer in a run, gets it when it is stored, and costs the log nothing meanwhile;
// it ends with its time, its client or its node.
func TestWait(t *testing.T) {
	short, asked := atomic.Bool{}, make(chan struct{}, 9)
	n := edgetest.Share().Start(t, waiting(func(c *protocol.Call) (context.Context, context.CancelFunc) {
		asked <- struct{}{}
		if short.Load() {
			return context.WithTimeout(c.Context(), time.Millisecond)
		}
		return context.WithCancel(c.Context())
	}))
	running(t, n, "run")
	if a := n.Do("GET", "/echo/run/wait/0", ""); a.Body != "1\n" {
		t.Errorf("what is there already: %s", a.Body)
	}
	if a := n.Do("GET", "/echo/none/wait/0", ""); a.Status != 404 {
		t.Errorf("a run that is not there: %d", a.Status)
	}
	answers := make(chan string, 4)
	ask := func(after int) {
		a := n.Do("GET", fmt.Sprintf("/echo/run/wait/%d", after), "")
		answers <- fmt.Sprintf("%d %s", a.Status, strings.TrimSpace(a.Body))
	}
	go ask(1)
	go ask(2)
	n.Say("run", edgetest.Event(schema.TypeProgress, `{"done":1}`))
	if got := <-answers; got != "200 2" && got != "200 3" {
		t.Errorf("the one that waits for 2: %s", got)
	}
	n.Say("run", edgetest.Event(schema.TypeProgress, `{"done":2}`))
	if got := <-answers; got != "200 3" {
		t.Errorf("the one that waits for 3: %s", got)
	}
	short.Store(true)
	if a := n.Do("GET", "/echo/run/wait/3", ""); a.Body != "\"nothing\"\n" {
		t.Errorf("its time is over: %d %s", a.Status, a.Body)
	}
	short.Store(false)
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+n.Host+"/echo/run/wait/9", nil)
	gone := make(chan error, 1)
	for len(asked) > 0 {
		<-asked
	}
	go func() { _, err := n.HTTP.Do(r); gone <- err }() // it has none
	<-asked
	leave()
	if err := <-gone; err == nil {
		t.Error("a client that has left was answered")
	}
	for len(asked) > 0 {
		<-asked
	}
	go ask(3)
	<-asked
	n.Stop()
	if got := <-answers; !strings.HasPrefix(got, "503 ") {
		t.Errorf("the node goes away: %s", got)
	}
}

// TestIDFirst: a client that gives an id to the event after it gets each id before its data.
func TestIDFirst(t *testing.T) {
	n := edgetest.Share().Start(t, spoken(func(p *protocol.Protocol) {
		p.Streams[0].Format = &sse.Format{Name: "echo", IDFirst: true, NoRetry: true, Header: http.Header{"X-Echo": {"v1"}}}
		p.Streams[0].Prelude = func(*protocol.Call, protocol.Seam) ([]dialect.Frame, error) {
			return []dialect.Frame{{Data: []byte("[HELLO]"), Token: []byte("0.1")}}, nil
		}
	}))
	n.Say("run", edgetest.Event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`))
	if a := n.Do("GET", "/echo/run", ""); a.Body != "id: 0.1\ndata: [HELLO]\n\ndata: {\"seq\":1,\"of\":\"\"}\n\n" ||
		a.Header.Get("X-Echo") != "v1" {
		t.Errorf("%q %v", a.Body, a.Header)
	}
}
