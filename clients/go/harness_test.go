package agentstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string, h http.Header) *http.Response {
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// streamed is the beginning of a stream.
func streamed(body string) *http.Response {
	return answer(200, body, http.Header{"Content-Type": {"text/event-stream"}})
}

// pipeStream is a body that a test feeds; it ends with the request, as the real transport's does.
func pipeStream(ctx context.Context) (*http.Response, *io.PipeWriter) {
	r, w := io.Pipe()
	resp := streamed("")
	resp.Body = r
	context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
	return resp, w
}

// client talks to answers made by hand.
func client(t *testing.T, cfg Config, serve func(*http.Request) (*http.Response, error)) *Client {
	t.Helper()
	cfg.BaseURL, cfg.HTTPClient = "http://x", &http.Client{Transport: roundTrip(serve)}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dial talks to a server.
func dial(t *testing.T, url string, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{BaseURL: url}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// lines of a scenario as run r1 has them.
func lines(scenario string) []string {
	var out []string
	for i, e := range schematest.ByName(scenario).Events {
		e.RunID, e.Seq, e.ID, e.TS = "r1", schema.Seq(i+1), fmt.Sprintf("evt_%06d", i+1), "2026-01-01T00:00:00.000Z"
		out = append(out, string(e.AppendLine(nil)))
	}
	return out
}

// line is one event with a text, or a final lifecycle.
func line(first, seq int) string {
	e := schema.Event{ID: fmt.Sprintf("evt_%d", seq), TS: "2026-01-01T00:00:00.000Z", Type: schema.TypeTextDelta,
		RunID: "r1",
		Seq:   schema.Seq(seq), FirstSeq: schema.Seq(first), Payload: []byte(fmt.Sprintf(`{"text":"%d "}`, seq))}
	return string(e.AppendLine(nil))
}

func final(first, seq int, payload string) string {
	e := schema.Event{ID: fmt.Sprintf("evt_%d", seq), TS: "2026-01-01T00:00:00.000Z", Type: schema.TypeRunLifecycle,
		RunID: "r1",
		Seq:   schema.Seq(seq), FirstSeq: schema.Seq(first), Payload: []byte(payload)}
	return string(e.AppendLine(nil))
}

const done = `{"state":"done","reason":null}`

// sse writes lines as the native dialect does: data, id. named gives them the names that ?event=type asks for, and
// that servers gave unasked once.
func sse(lines []string, eol string) string { return framed(lines, eol, false) }

func named(lines []string, eol string) string { return framed(lines, eol, true) }

func framed(lines []string, eol string, named bool) string {
	var b strings.Builder
	for _, l := range lines {
		e, err := schema.DecodeLine([]byte(l))
		if err != nil {
			panic(err)
		}
		if named {
			b.WriteString("event: " + e.Type + eol)
		}
		fmt.Fprintf(&b, "data: %s%sid: %d%s%s", l, eol, e.Seq, eol, eol)
	}
	return b.String()
}

// script is a server with one run, whose stream a test may write itself.
type script struct {
	*httptest.Server
	mu      sync.Mutex
	lines   []string
	cursors []string
	queries []string
	// serve may write a connection's body itself (true). n counts connections from 0.
	serve func(w http.ResponseWriter, r *http.Request, rest []string, n int) bool
}

func newScript(t *testing.T, lines []string) *script {
	s := &script{lines: lines}
	s.Server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Close)
	return s
}

func (s *script) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.cursors)
	s.cursors = append(s.cursors, r.Header.Get("Last-Event-ID"))
	s.queries = append(s.queries, r.URL.RawQuery)
	lines, serve := slices.Clone(s.lines), s.serve
	s.mu.Unlock()
	after, err := schema.ParseCursor(r.Header.Get("Last-Event-ID"))
	newest := seqOf(lines[len(lines)-1])
	switch {
	case err != nil || after > newest:
		refuse(w, 409, "CURSOR-AHEAD", "the cursor is beyond the newest event")
		return
	case after == newest:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	rest := lines[slices.IndexFunc(lines, func(l string) bool { return seqOf(l) > after }):]
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if serve != nil && serve(w, r, rest, n) {
		return
	}
	io.WriteString(w, "retry: 1\n\n"+sse(rest, "\n"))
}

func seqOf(line string) schema.Seq {
	e, err := schema.DecodeLine([]byte(line))
	if err != nil {
		panic(err)
	}
	return e.Seq
}

func (s *script) seen() (cursors, queries []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cursors), slices.Clone(s.queries)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":%q}}`, code, message)
}

// collect reads a stream to its end: lines as they came, with gaps between them.
func collect(t *testing.T, s *Stream) (got []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	defer s.Close()
	for e, err := range s.All(ctx) {
		if gap := new(GapError); errors.As(err, &gap) {
			got = append(got, "! "+gap.Error())
			continue
		}
		if err != nil {
			return got, err
		}
		if e.Seq != s.Cursor() {
			t.Fatalf("seq %d is given and the cursor is %d", e.Seq, s.Cursor())
		}
		got = append(got, string(s.Line()))
	}
	return got, nil
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	t.Fatalf("got %d lines\n%s\nwant %d\n%s", len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
}

// httpServer serves one stream, then 204.
func httpServer(body string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") != "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, body)
	}))
}
