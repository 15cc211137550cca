package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
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

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

func TestClientURL(t *testing.T) {
	for _, c := range []struct{ server, want string }{
		{"http://h:1", "http://h:1/v1/agent/runs/r%2F..%2Fx/stream"},
		{"https://h/base/", "https://h/base/v1/agent/runs/r%2F..%2Fx/stream"},
	} {
		cl, err := newClient(ServerFlags{Server: c.server}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := cl.runURL("r/../x", "stream"); got != c.want {
			t.Errorf("%s: %s, want %s", c.server, got, c.want)
		}
	}
}

func TestAPIErrorForms(t *testing.T) {
	for _, c := range []struct {
		name, body, want string
		status           int
	}{
		{"ours", `{"error":{"code":"NOT-FOUND","message":"there is nothing here","line":3}}`, "NOT-FOUND: there is nothing here (HTTP 404)", 404},
		{"a proxy's page", "<html><body>Bad Gateway</body></html>", "bad gateway (HTTP 502)", 502},
		{"text", "upstream said no\nmore", "upstream said no (HTTP 502)", 502},
		{"empty", "", "service unavailable (HTTP 503)", 503},
		{"other JSON", `{"detail":1}`, `{"detail":1} (HTTP 400)`, 400},
		{"hostile", `{"error":{"code":"X\u001b[2J","message":"a\nb\u202e"}}`, "X␛[2J: a␊b<U+202E> (HTTP 400)", 400},
		{"long", strings.Repeat("x", 5000), strings.Repeat("x", 200) + "… (HTTP 400)", 400},
	} {
		if got := readAPIError(answer(c.status, c.body, nil)).Error(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRetryable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&connError{errors.New("reset")}, true}, {&apiError{Status: 429}, true}, {&apiError{Status: 503}, true},
		{&apiError{Status: 502}, true}, {&apiError{Status: 504}, true}, {&apiError{Status: 408}, true},
		{&apiError{Status: 500}, false}, {&apiError{Status: 400}, false}, {&apiError{Status: 404}, false},
		{&apiError{Status: 409}, false}, {&apiError{Status: 410}, false}, {&apiError{Status: 422}, false},
		{errors.New("other"), false},
	} {
		if _, got := retryable(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		in   string
		want time.Duration
	}{
		{"", 0}, {"5", 5 * time.Second}, {"0", 0}, {"-1", 0}, {"x", 0},
		{"Fri, 02 Jan 2026 03:04:35 GMT", 30 * time.Second}, {"Fri, 02 Jan 2026 03:04:00 GMT", 0},
	} {
		if got := retryAfter(c.in, now); got != c.want {
			t.Errorf("%q: %v, want %v", c.in, got, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	var b bytes.Buffer
	cmd := VersionCmd{Streams: Streams{Out: &b}}
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"agentstream", "go ", "nats-server", "nats.go"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
}
