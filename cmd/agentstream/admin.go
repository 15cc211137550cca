package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"agentstream/edge"
	"agentstream/persister"
)

// admin serves operators: metrics, profiles, health. It is a listener of its own, so that nothing of
// this is ever on the public one.
type admin struct {
	metrics    *metrics
	checks     []edge.Check
	durability string
	persister  *persister.Persister // nil where none runs
}

func (a *admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("/metrics\n/debug/pprof/\n/healthz\n/readyz\n"))
	})
	return mux
}

// ready answers 200 when every check passes, 503 otherwise, with the reasons.
func (a *admin) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	answer := struct {
		Ready      bool               `json:"ready"`
		Durability string             `json:"durability"`
		Checks     map[string]string  `json:"checks"`
		Persister  []persister.Status `json:"persister,omitempty"`
	}{Ready: true, Durability: a.durability, Checks: make(map[string]string)}
	for _, c := range a.checks {
		answer.Checks[c.Name] = "ok"
		if err := c.Run(ctx); err != nil {
			answer.Ready = false
			answer.Checks[c.Name] = err.Error()
		}
	}
	if a.persister != nil {
		answer.Persister = a.persister.Status()
	}
	w.Header().Set("Content-Type", "application/json")
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(answer) // the client is gone
}

// run serves ln until ctx ends.
func (a *admin) run(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: a.handler(), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close() // a profile that is being taken: it ends here
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
