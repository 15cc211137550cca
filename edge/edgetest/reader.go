package edgetest

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"agentstream/schema"
)

// Shown is what a client got as one frame.
type Shown struct {
	schema.Event
	Line    string
	FrameID string
}

// FrameReader reads the frames of a stream one by one.
type FrameReader struct {
	T testing.TB
	R *bufio.Reader
}

// Next returns the next frame; false at the end of the body, clean or not.
func (f FrameReader) Next() (Shown, bool) {
	f.T.Helper()
	var s Shown
	var event string
	for {
		line, err := f.R.ReadString('\n')
		if err != nil {
			return s, false
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && s.Line != "":
			e, err := schema.DecodeLine([]byte(s.Line))
			if err != nil || event != "" && e.Type != event {
				f.T.Fatalf("event %q: %v: %s", event, err, s.Line)
			}
			if e.Type == "stream.gap" { // the numbers say it, and its own tests read it
				s, event = Shown{}, ""
				continue
			}
			s.Event = e
			return s, true
		case name == "event":
			event = value
		case name == "data":
			s.Line = value
		case name == "id":
			s.FrameID = value
		}
	}
}

// RetryHint matches what a stream of SSE begins with.
var RetryHint = regexp.MustCompile(`^retry: \d+\n\n`)

// body checks headers and hint, and returns the rest.
func (a Reply) Events(t testing.TB) string {
	t.Helper()
	if a.Status != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %s: %s", a.Status, a.Header.Get("Content-Type"), a.Body)
	}
	loc := RetryHint.FindStringIndex(a.Body)
	if loc == nil {
		t.Fatalf("no hint: %q", a.Body[:min(len(a.Body), 80)])
	}
	return a.Body[loc[1]:]
}

// EventReader takes a live stream event by event.
type EventReader struct {
	t    testing.TB
	Resp *http.Response
	B    *bufio.Reader
}

// Watch opens a stream of SSE.
func (h *House) Watch(c *http.Client, path string, headers ...string) *EventReader {
	h.T.Helper()
	resp, err := c.Do(h.Request("GET", path, "", headers...))
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		h.T.Fatalf("stream: %d %s", resp.StatusCode, b)
	}
	r := &EventReader{h.T, resp, bufio.NewReader(resp.Body)}
	if got, err := r.Next(); err != nil || !RetryHint.MatchString(got) {
		h.T.Fatalf("no hint: %q %v", got, err)
	}
	return r
}

// Next returns the text up to and with the next blank line.
func (r *EventReader) Next() (string, error) {
	var b strings.Builder
	for {
		line, err := r.B.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\n" {
			return b.String(), err
		}
	}
}

// Expect fails the test unless the next event is this one.
func (r *EventReader) Expect(want string) {
	r.t.Helper()
	for want != "" {
		got, err := r.Next()
		if err != nil || !strings.HasPrefix(want, got) {
			r.t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		want = want[len(got):]
	}
}

// H2C returns a client that speaks HTTP/2 without TLS.
func H2C() *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: tr}
}
