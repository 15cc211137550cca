package doctor

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/edge/auth"
	"agentstream/edge/auth/authtest"
	"agentstream/internal/testkit"
)

// edge is what a doctor meets where everything is in order.
func edge(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "{}") })
	mux.HandleFunc("POST /v1/agent/runs/{run}/events", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusBadRequest)
	})
	mux.HandleFunc("GET /v1/agent/events/stream", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "websocket" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = conn.Close()
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: tap.place\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	return mux
}

// before serves an edge behind what change makes of it.
func before(t *testing.T, change func(http.Handler) http.Handler) string {
	t.Helper()
	s := httptest.NewServer(change(edge(t)))
	t.Cleanup(s.Close)
	return s.URL
}

func only(path string, then http.HandlerFunc) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, path) {
				then(w, r)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// stream lets then answer streams, and the edge everything else.
func stream(then func(w http.ResponseWriter, r *http.Request)) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/agent/events/stream" && r.Header.Get("Upgrade") == "" {
				then(w, r)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// one expects a single finding that has these words and says how it is mended; no words expect none.
func one(t *testing.T, x *examination, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if len(x.found) > 0 {
			t.Errorf("found %q", x.found)
		}
		return
	}
	for _, word := range append(words, "mend: ") {
		if len(x.found) != 1 || !strings.Contains(x.found[0], word) {
			t.Errorf("found %q, want %q", x.found, word)
			return
		}
	}
}

func examine() *examination { return &examination{soon: 14 * 24 * time.Hour, now: time.Now} }

// TestFront plants what proxies do.
func TestFront(t *testing.T) {
	same := func(h http.Handler) http.Handler { return h }
	for name, c := range map[string]struct {
		change func(http.Handler) http.Handler
		words  []string
	}{
		"in order": {same, nil},
		"a proxy that buffers": {stream(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}), []string{"buffers", "proxy_buffering off"}},
		"a proxy that sends the headers and buffers the rest": {stream(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), []string{"buffers", "proxy_buffering off"}},
		"a proxy that compresses": {stream(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write([]byte("event: tap.place\n\n"))
			_ = z.Flush()
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), []string{"compressed (gzip)", "gzip off"}},
		"a short idle time-out": {stream(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "event: tap.place\n\n")
			_ = http.NewResponseController(w).Flush()
		}), []string{"idle time-out", "proxy_read_timeout"}},
		"a token that may not read": {stream(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}), []string{"403", "--token"}},
		"a proxy that passes no upgrade on": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") != "" {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				h.ServeHTTP(w, r)
			})
		}, []string{"WebSocket", "Upgrade"}},
		"a bound of bodies": {only("/v1/agent/runs", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}), []string{"bodies of 2 MiB", "client_max_body_size"}},
		"the operators' port": {only("/metrics", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "up 1")
		}), []string{"/metrics is open", "--admin-listen"}},
		"a clock that is late": {only("/healthz", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		}), []string{"clock", "chrony"}},
		"a balancer without edges": {only("/healthz", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
		}), []string{"answers 502", "balancer"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := examine()
			x.front(t.Context(), before(t, c.change), "token", 300*time.Millisecond)
			one(t, x, c.words...)
		})
	}
}

// TestFrontThroughAProxy: a proxy that passes everything on is in order.
func TestFrontThroughAProxy(t *testing.T) {
	at, err := url.Parse(before(t, func(h http.Handler) http.Handler { return h }))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.FlushInterval, proxy.ErrorLog = -1, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s := httptest.NewServer(proxy)
	defer s.Close()
	x := examine()
	x.front(t.Context(), s.URL, "", 300*time.Millisecond)
	one(t, x)
}

// TestFrontThatIsNotThere plants addresses that lead nowhere, and one in clear.
func TestFrontThatIsNotThere(t *testing.T) {
	x := examine()
	x.front(t.Context(), "http://127.0.0.1:1", "", time.Second)
	one(t, x, "cannot be reached", "--public-url")
	x = examine()
	x.front(t.Context(), "agents.example", "", time.Second)
	one(t, x, "no URL")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x = examine()
	x.front(ctx, "http://agents.example", "", time.Second)
	if len(x.found) != 2 || !strings.Contains(x.found[0], "in clear") {
		t.Errorf("%q", x.found)
	}
}

// TestServers plants what monitoring ports of NATS say.
func TestServers(t *testing.T) {
	const fine = `"jetstream":{"config":{"max_storage":100,"sync_interval":120000000000,"sync_always":true},"stats":{"storage":10}}`
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for name, c := range map[string]struct {
		body  string
		words []string
	}{
		"in order": {`{"server_name":"n1","now":"` + now + `",` + fine + `}`, nil},
		"sync that is not always": {`{"server_name":"n1","now":"` + now + `",` +
			strings.Replace(fine, "true", "false", 1) + `}`, []string{"2m0s", "sync_interval: always"}},
		"a full store": {`{"server_name":"n1","now":"` + now + `",` +
			strings.Replace(fine, `"storage":10`, `"storage":90`, 1) + `}`, []string{"90%", "max_file_store"}},
		"a fast clock": {`{"server_name":"n1","now":"` +
			time.Now().Add(time.Minute).UTC().Format(time.RFC3339Nano) + `",` + fine + `}`,
			[]string{"clock of NATS n1", "chrony"}},
		"no JetStream": {`{"server_name":"n1","now":"` + now + `","jetstream":{}}`,
			[]string{"no JetStream", "store_dir"}},
		"one of a cluster": {`{"server_name":"n1","now":"` + now + `","cluster":{"urls":["n2:6222"]},` + fine +
			`}`, []string{"one of a cluster", "--nats-monitor"}},
		"no answer": {`no`, []string{"does not answer", "--nats-monitor"}},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.body) }))
		x := examine()
		x.servers(t.Context(), []string{s.URL})
		s.Close()
		t.Run(name, func(t *testing.T) { one(t, x, c.words...) })
	}
}

// TestFiles plants keys, certificates, an issuer and a folder of objects that are not as they are to be.
func TestFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := func(expires time.Time) string {
		_, k, err := auth.NewAPIKey("ci", "acme", auth.ScopeRead, expires)
		line, lerr := k.Line()
		if err != nil || lerr != nil {
			t.Fatal(err, lerr)
		}
		return "# keys\n\n" + string(line)
	}
	for path, words := range map[string][]string{
		write("fine", key(time.Now().AddDate(1, 0, 0)), 0o600):                                      nil,
		write("for ever", key(time.Time{}), 0o600):                                                  nil,
		write("soon", key(time.Now().Add(time.Hour)), 0o600):                                        {"key ci of acme expires", "new-key"},
		write("late", key(time.Now().Add(-48*time.Hour)), 0o600):                                    {"has expired", "new-key"},
		write("open", key(time.Time{}), 0o666):                                                      {"others may write", "chmod 600"},
		write("broken", "{", 0o600):                                                                 {"line 1: not a key", "--append"},
		write("twice", key(time.Time{})+"\n"+key(time.Time{}), 0o600):                               {"line 7: key ci is there twice"},
		write("foreign", `{"id":"ci","tenant":"acme","hash":"sha256:00","scopes":["read"]}`, 0o600): {"line 1", "64 hex digits"},
		filepath.Join(folder, "missing"):                                                            {"cannot be read", "--api-keys"},
	} {
		x := examine()
		x.keys(path)
		one(t, x, words...)
	}
	cert, _ := testkit.NewAuthority(t).Issue(t, folder, "localhost") // for an hour
	x := examine()
	x.certificate(cert)
	one(t, x, "expires", "renew")
	x.soon = time.Minute
	x.found = nil
	x.certificate(cert)
	one(t, x)
	x = examine()
	x.certificate(write("no certificate", "x", 0o600))
	one(t, x, "no certificate", "--tls-cert")
	issuer := authtest.New(t, "rsa")
	x = examine()
	x.issuer(t.Context(), issuer.URL)
	one(t, x)
	x = examine()
	x.issuer(t.Context(), "http://127.0.0.1:1")
	one(t, x, "issuer", "--oidc-issuer")
	x = examine()
	x.objects(t.Context(), &archive.BlobFlags{Blobs: filepath.Join(folder, "objects")})
	one(t, x)
	x = examine()
	x.objects(t.Context(), &archive.BlobFlags{Blobs: filepath.Join(write("a file", "", 0o600), "objects")})
	one(t, x, "objects", "mend")
}
