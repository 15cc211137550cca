package load

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/native"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is a real edge over a log in memory.
type target struct {
	url string
	log *memory.Log
}

func newTarget(t testing.TB) target {
	t.Helper()
	log := memory.New()
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := edge.New(edge.Config{Hub: hub, Appender: app, Protocols: []protocol.Protocol{native.Protocol()},
		DefaultTenant: "default", DrainWindow: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, hub.Run)
	serve(t, func(ctx context.Context) error { return srv.Run(ctx, ln) })
	return target{url: "http://" + ln.Addr().String(), log: log}
}

func serve(t testing.TB, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// faulty stands before a target and spoils what it says.
type faulty struct {
	// frames gets the number of an event on its stream, from 0, and the frame, and gives what is passed on;
	// nil passes all. ok false ends the stream.
	frames func(stream int64, i int, frame string) (out string, ok bool)
	// post reports whether a POST of events is passed on; else it gets the status.
	post    func(i int64) int
	busy    int64 // so many streams are answered 503 first
	streams atomic.Int64
	posts   atomic.Int64
	ends    atomic.Int64 // runs that were ended
}

func (l *faulty) before(t *testing.T, to target) string {
	t.Helper()
	u, err := url.Parse(to.url)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	pass := httputil.NewSingleHostReverseProxy(u)
	pass.Transport = transport
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/stream") && l.frames != nil:
			l.stream(w, r, u.Host, transport)
		case r.Method == "POST" && l.post != nil && r.ContentLength > 80: // not the last event of a run
			if status := l.post(l.posts.Add(1) - 1); status != 0 {
				_, _ = io.Copy(io.Discard, r.Body)
				http.Error(w, "no\x1b[31m", status)
				return
			}
			pass.ServeHTTP(w, r)
		default:
			if r.Method == "POST" && r.ContentLength <= 80 {
				l.ends.Add(1)
			}
			pass.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); transport.CloseIdleConnections() })
	return srv.URL
}

func (l *faulty) stream(w http.ResponseWriter, r *http.Request, host string, transport *http.Transport) {
	number := l.streams.Add(1) - 1
	if number < l.busy {
		http.Error(w, "come again", http.StatusServiceUnavailable)
		return
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", host, ""
	resp, err := transport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(w).Flush()
	lines := bufio.NewReader(resp.Body)
	var frame strings.Builder
	for i := 0; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if frame.WriteString(line); line != "\n" {
			continue
		}
		text, ok := frame.String(), true
		frame.Reset()
		if strings.Contains(text, "text.delta") {
			text, ok = l.frames(number, i, text)
			i++
		}
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		if !ok {
			return
		}
	}
}

// quick is a load of the smallest numbers that still are one.
func quick(s Scenario, url string) Config {
	cfg := Config{URL: url, Scenario: s, Runs: 5, Watchers: 3, Rate: 400, Batch: 2, Duration: 300 * time.Millisecond,
		Warm: 50 * time.Millisecond, Settle: 300 * time.Millisecond, Events: 500}
	switch s {
	case FanOut:
		cfg.Runs, cfg.Watchers, cfg.Rate = 1, 20, -1
	case Replay:
		cfg.Runs, cfg.Batch = 1, 64
	case Publish:
		cfg.Watchers, cfg.Rate = 0, -1
	}
	return cfg
}
