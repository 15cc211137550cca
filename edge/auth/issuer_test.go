package auth

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentstream/edge/auth/authtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer takes log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// accept makes an authenticator for an issuer's tokens.
func accept(t testing.TB, i *authtest.Issuer, change ...func(*JWTConfig)) *JWT {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg := JWTConfig{Issuer: i.URL, Audiences: []string{"agentstream", "second"}, JWKS: i.URL + "/keys",
		Transport: transport}
	for _, f := range change {
		f(&cfg)
	}
	j, err := NewJWT(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func request(header ...string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/v1/agent/runs/run", nil)
	for _, h := range header {
		r.Header.Add("Authorization", h)
	}
	return r
}

// clean says that an error tells nothing of a token: no part of it that is long enough to mean it.
func clean(t testing.TB, text, token string) {
	t.Helper()
	for part := range strings.SplitSeq(token, ".") {
		if len(part) >= 12 && strings.Contains(text, part[:12]) {
			t.Errorf("%q is in %q", part[:12], text)
		}
	}
}
