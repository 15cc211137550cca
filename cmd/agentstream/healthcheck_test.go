package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/internal/testkit"
)

// TestHealthcheck: it asks the right path of the process's own address, and says what is wrong.
func TestHealthcheck(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"ready":false,"checks":{"nats":"away"}}`))
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(admin string, live bool) (string, error) {
		var out bytes.Buffer
		c := HealthcheckCmd{AdminListen: admin, Live: live, Timeout: 5 * time.Second, Streams: cli.Streams{Out: &out}}
		err := c.Run(t.Context())
		return out.String(), err
	}
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "", "[::]"} {
		if said, err := ask(host+":"+port, false); err != nil || said != "ok\n" {
			t.Errorf("%s: %q, %v", host, said, err)
		}
	}
	status = http.StatusServiceUnavailable
	if _, err := ask("0.0.0.0:"+port, false); !errors.Is(err, errNotHealthy) ||
		!strings.Contains(err.Error(), `503 {"ready":false,"checks":{"nats":"away"}}`) {
		t.Errorf("not ready: %v", err)
	}
	if _, err := ask("0.0.0.0:"+port, true); err != nil {
		t.Errorf("alive: %v", err)
	}
	server.Close()
	for _, admin := range []string{"127.0.0.1:" + port, "off", "nonsense"} {
		if _, err := ask(admin, false); err == nil || !strings.HasPrefix(err.Error(), "healthcheck: ") {
			t.Errorf("%s: %v", admin, err)
		}
	}
}

// TestHealthcheckOverTLS: operators are served with the certificate of the files, which is the one that the process
// must show.
func TestHealthcheckOverTLS(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "operators.example")
	other, _ := ca.Issue(t, t.TempDir(), "operators.example")
	m, log := process.NewMetrics(), slog.New(slog.DiscardHandler)
	f := process.AdminFlags{AdminTLS: process.TLSFlags{Cert: cert, Key: key}, HealthListen: "127.0.0.1:0"}
	o, err := process.OpenOperators(t.Context(), "127.0.0.1:0", f, m, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- process.RunStages(ctx, o.Parts(&process.Admin{Metrics: m, Log: log})) }()
	ask := func(cert string) error {
		var out bytes.Buffer
		c := HealthcheckCmd{AdminListen: o.Addr(), AdminTLSCert: cert, Timeout: 20 * time.Second,
			Streams: cli.Streams{Out: &out}}
		return c.Run(t.Context())
	}
	if err := ask(cert); err != nil {
		t.Error(err)
	}
	if err := ask(other); err == nil || !strings.Contains(err.Error(), "another certificate") {
		t.Errorf("another certificate: %v", err)
	}
	if err := ask(""); err == nil {
		t.Error("without TLS: it is answered")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
