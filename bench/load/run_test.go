package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// settled is more patience for what must come: the machine may be busy.
const settled = 20 * time.Second

// Every scenario, over every transport, against a real edge: all is delivered, and said to be.
func TestScenarios(t *testing.T) {
	for _, s := range []Scenario{FanOut, ManyRuns, Idle, Replay, Publish} {
		for _, transport := range []WatchTransport{SSE, WebSocket} {
			t.Run(string(s)+" "+string(transport), func(t *testing.T) {
				cfg := quick(s, newTarget(t).url)
				cfg.Transport, cfg.Settle, cfg.Probe = transport, settled, own
				var phases []string
				cfg.Hooks.Phase = func(p string) { phases = append(phases, p) }
				r, err := Run(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				check(t, cfg.withDefaults(), r)
				if len(phases) < 2 {
					t.Errorf("phases %q", phases)
				}
			})
		}
	}
}

func own(context.Context) (Usage, error) { return processUsage(os.Getpid()) }

// check holds a result to what every good one says.
func check(t *testing.T, cfg Config, r *Result) {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if r.Acked == 0 || r.Delivered != r.Expected || r.Expected < r.Acked*int64(max(cfg.Watchers, 1)) {
		t.Errorf("acked %d, delivered %d of %d", r.Acked, r.Delivered, r.Expected)
	}
	if r.Seconds <= 0 || r.Ack.N == 0 || r.Server.MemoryAfter == 0 || len(r.Timeline) == 0 {
		t.Errorf("seconds %v, %d answers, server %+v, %d samples", r.Seconds, r.Ack.N, r.Server, len(r.Timeline))
	}
	if cfg.Watchers > 0 && (r.Latency.N == 0 || r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P99) {
		t.Errorf("latency %+v", r.Latency)
	}
	if cfg.Scenario == ManyRuns {
		// 400 a second for 0.35 s in pairs, a unit more or less for each of the four writers.
		if want := 140.0; float64(r.Acked) < want-10 || float64(r.Acked) > want+10 {
			t.Errorf("%d events at a rate that makes %.0f", r.Acked, want)
		}
	}
	var text, svg bytes.Buffer
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), fmt.Sprint(r.Acked)) {
		t.Errorf("report %q: %v", &text, err)
	}
	if err := r.SVG(&svg); err != nil || !strings.HasPrefix(svg.String(), "<svg ") {
		t.Errorf("picture %.80q: %v", &svg, err)
	}
	doc, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(doc, &back); err != nil || back.Acked != r.Acked || back.Latency.P99 != r.Latency.P99 {
		t.Errorf("JSON gives %+v: %v", back, err)
	}
}

// Over TLS connections have buffers of their own: another way to read, and the same account.
func TestTLS(t *testing.T) {
	u, err := url.Parse(newTarget(t).url)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	pass := httputil.NewSingleHostReverseProxy(u)
	pass.Transport, pass.FlushInterval = transport, -1
	srv := httptest.NewTLSServer(pass)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); transport.CloseIdleConnections() })
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	for _, transport := range []WatchTransport{SSE, WebSocket} {
		cfg := quick(ManyRuns, srv.URL)
		cfg.Transport, cfg.Settle, cfg.Probe = transport, settled, own
		cfg.TLS = &tls.Config{RootCAs: roots}
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		check(t, cfg.withDefaults(), r)
		cfg.TLS = nil
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Error("a certificate that nobody trusts is trusted")
		}
	}
}

// Lines of all runs go into requests that stay open.
func TestStream(t *testing.T) {
	for _, s := range []Scenario{ManyRuns, Publish} {
		to := newTarget(t)
		cfg := quick(s, to.url)
		cfg.Stream, cfg.Settle, cfg.Probe = true, settled, own
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		check(t, cfg.withDefaults(), r)
		if r.Publisher != "stream" {
			t.Errorf("published over %s", r.Publisher)
		}
	}
}

// The SDK writes into the log itself.
func TestSDK(t *testing.T) {
	for _, s := range []Scenario{ManyRuns, Publish} {
		to := newTarget(t)
		cfg := quick(s, to.url)
		cfg.Log, cfg.Settle, cfg.Probe = to.log, settled, own
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		check(t, cfg.withDefaults(), r)
		if r.Publisher != "sdk" {
			t.Errorf("published over %s", r.Publisher)
		}
	}
}

// A load that cannot see damage is worth nothing: each kind is done to one stream and must be found.
func TestDamageIsFound(t *testing.T) {
	held := ""
	for name, c := range map[string]struct {
		frames func(stream int64, i int, frame string) (string, bool)
		want   func(*Result) bool
		err    error
	}{
		"lost": {func(s int64, i int, f string) (string, bool) {
			if s == 0 && i == 4 {
				return "", true
			}
			return f, true
		}, func(r *Result) bool { return r.Lost == 1 && r.Duplicate+r.Disorder == 0 && r.Delivered == r.Expected-1 },
			ErrIncomplete},
		"the rest lost": {func(s int64, i int, f string) (string, bool) {
			if s == 0 && i >= 4 {
				return "", true
			}
			return f, true
		}, func(r *Result) bool { return r.Lost > 1 && r.Delivered == r.Expected-r.Lost }, ErrIncomplete},
		"twice": {func(s int64, i int, f string) (string, bool) {
			if s == 0 && i == 4 {
				return f + f, true
			}
			return f, true
		}, func(r *Result) bool { return r.Duplicate == 1 && r.Lost+r.Disorder == 0 }, ErrIncomplete},
		"out of order": {func(s int64, i int, f string) (string, bool) {
			if s == 0 && i == 4 {
				held = f
				return "", true
			}
			if s == 0 && i == 5 {
				return f + held, true
			}
			return f, true
		}, func(r *Result) bool { return r.Disorder == 1 && r.Lost+r.Duplicate == 0 }, ErrIncomplete},
		"of another run": {func(s int64, i int, f string) (string, bool) {
			if s == 0 && i == 4 {
				at := strings.IndexByte(f, quote) + 1 + dueDigits + 1
				return f + f[:at] + "0000ff" + f[at+runDigits:], true
			}
			return f, true
		}, func(r *Result) bool { return r.Stray == 1 && r.Lost+r.Duplicate == 0 }, ErrIncomplete},
		// No damage: the stream goes on exactly behind the last event.
		"ended": {func(s int64, i int, f string) (string, bool) { return f, s != 0 || i != 4 },
			func(r *Result) bool { return r.Resumed == 1 && r.Cut == 0 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := &faulty{frames: c.frames}
			cfg := quick(FanOut, l.before(t, newTarget(t)))
			cfg.Watchers, cfg.Rate, cfg.Settle = 3, 200, time.Second
			r, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Err(); !errors.Is(err, c.err) || c.err == nil && err != nil || !c.want(r) {
				t.Errorf("error %v; %+v", err, *r)
			}
		})
	}
}

// What is refused is not lost, but it is not passed over in silence either.
func TestRefusedEventsAreNotLost(t *testing.T) {
	l := &faulty{post: func(i int64) int {
		if i%5 == 4 {
			return 503
		}
		return 0
	}}
	cfg := quick(ManyRuns, l.before(t, newTarget(t)))
	cfg.Settle = settled
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(r.Err(), ErrTrouble) || r.Refused == 0 || r.Lost+r.Duplicate+r.Disorder != 0 ||
		r.Delivered != r.Expected {
		t.Fatalf("%v; %+v", r.Err(), *r)
	}
	var text bytes.Buffer
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "503") ||
		strings.Contains(text.String(), "\x1b") {
		t.Errorf("report %q: %v", &text, err)
	}
}

func TestServerThatCannotBeLoaded(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer other.Close()
	url := other.URL
	for name, c := range map[string]struct {
		cfg  Config
		want error
	}{
		"nobody there": {Config{URL: "http://127.0.0.1:1"}, nil},
		"no upgrade":   {Config{URL: url, Transport: WebSocket, Runs: 1}, ErrRefused},
		"no address":   {Config{URL: "localhost:8080"}, ErrConfig},
		"a path":       {Config{URL: "http://h/v1"}, ErrConfig},
		"two lines":    {Config{URL: "http://h", Token: "a\r\nX: y"}, ErrConfig},
		"scenario":     {Config{URL: "http://h", Scenario: "s9"}, ErrConfig},
		"transport":    {Config{URL: "http://h", Transport: "smoke"}, ErrConfig},
		"size":         {Config{URL: "http://h", Size: 10}, ErrConfig},
		"body":         {Config{URL: "http://h", Size: 100 << 10, Batch: 1000}, ErrConfig},
		"replay":       {Config{URL: "http://h", Scenario: Replay, Runs: 2}, ErrConfig},
		"tenant":       {Config{URL: "http://h", Tenant: "a b"}, ErrConfig},
		"runs":         {Config{URL: "http://h", Runs: -1}, ErrConfig},
		"watchers":     {Config{URL: "http://h", Watchers: -1}, ErrConfig},
		"probe":        {Config{URL: newTarget(t).url, Runs: 1, Probe: OfMetrics(url + "/nothing")}, ErrProbe},
	} {
		r, err := Run(t.Context(), c.cfg)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// A watcher that is asked to come again does.
func TestBusyServerIsAskedAgain(t *testing.T) {
	l := &faulty{frames: func(_ int64, _ int, f string) (string, bool) { return f, true }, busy: 2}
	cfg := quick(FanOut, l.before(t, newTarget(t)))
	cfg.Watchers, cfg.Rate, cfg.Settle = 3, 200, settled
	r, err := Run(t.Context(), cfg)
	if err != nil || r.Err() != nil || l.streams.Load() != 5 {
		t.Fatalf("%v; %+v after %d streams", err, r, l.streams.Load())
	}
}

// A server that does not keep up: the load ends all the same, and says what it has not asked for.
func TestRateThatCannotBeHad(t *testing.T) {
	l := &faulty{post: func(int64) int {
		_ = pause(t.Context(), 20*time.Millisecond)
		return 0
	}}
	cfg := quick(ManyRuns, l.before(t, newTarget(t)))
	cfg.Rate, cfg.Writers, cfg.Depth, cfg.Settle, cfg.Warm = 2000, 1, 2, settled, -1
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(r.Err(), ErrTrouble) || r.Missed == 0 || r.Lost+r.Duplicate+r.Refused != 0 || r.Missed+r.Acked != 600 {
		t.Errorf("%v; %+v", r.Err(), *r)
	}
	if r.Latency.Max < 100 {
		t.Errorf("%v ms at most, of events that waited for half the load", r.Latency.Max)
	}
}

// An interrupted load ends at once, and leaves no run that seems to work.
func TestInterrupt(t *testing.T) {
	l := &faulty{post: func(int64) int { return 0 }}
	cfg := quick(ManyRuns, l.before(t, newTarget(t)))
	cfg.Duration = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Hooks.Progress = func(p Progress) {
		if p.Acked > 0 {
			cancel()
		}
	}
	if _, err := Run(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if got := l.ends.Load(); got != int64(cfg.Runs) {
		t.Errorf("%d runs of %d were ended", got, cfg.Runs)
	}
}
