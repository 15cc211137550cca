package sink

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/tap"
)

// TestReceiverThatIsNotTrusted: nothing is sent to a receiver whose certificate nobody trusts. The events wait: they are
// no dead letters, for the certificate may be mended.
func TestReceiverThatIsNotTrusted(t *testing.T) {
	for name, prefix := range map[string]string{"webhook": "webhook+https://", "OTLP": "otlp+https://",
		"OTLP over gRPC": "otlp+grpcs://", "ClickHouse": "clickhouse+https://"} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("%s %s has come", r.Method, r.URL)
			}))
			server.EnableHTTP2 = true
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s, err := Open(ctx, []string{prefix + server.Listener.Addr().String() + "/"}, Options{Private: true})
			if err == nil {
				defer s.Close()
				_, err = s.Write(ctx, []tap.Event{event("r", 1)})
			}
			if err == nil || errors.Is(err, persister.ErrPoison) || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("%v", err)
			}
		})
	}
}
