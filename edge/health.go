package edge

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// checkTimeout bounds what /readyz waits for.
const checkTimeout = 3 * time.Second

// CheckResult is the result of a check, and how long it took.
type CheckResult struct {
	Err  error
	Took time.Duration
}

// RunChecks runs the checks at the same time, so that one that hangs costs no other its answer. It returns a result
// for each, in their order, within checkTimeout.
func RunChecks(ctx context.Context, checks []Check) []CheckResult {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	out := make([]CheckResult, len(checks))
	var wg sync.WaitGroup
	for i, k := range checks {
		wg.Go(func() {
			begun := time.Now()
			err := k.Run(ctx)
			out[i] = CheckResult{Err: err, Took: time.Since(begun)}
		})
	}
	wg.Wait()
	return out
}

// recent is how long the checks that have failed are believed to fail.
const recent = 2 * time.Second

// failures are the checks that have failed when they ran last.
type failures struct {
	mu    sync.Mutex
	at    time.Time
	names []string
}

// failing returns the names of the checks that are not optional and fail. They run once for all who ask at the same time.
func (s *Server) failing(ctx context.Context) []string {
	f := &s.failed
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < recent {
		return f.names
	}
	f.names = nil
	for i, r := range RunChecks(context.WithoutCancel(ctx), s.cfg.Checks) {
		if k := s.cfg.Checks[i]; r.Err != nil && !k.Optional {
			f.names = append(f.names, k.Name)
		}
	}
	f.at = time.Now()
	return f.names
}

// health answers that the process serves requests, nothing about what it depends on.
func (s *Server) health(c *call) error {
	c.Reply(http.StatusOK, []byte(`{"status":"ok"}`))
	return nil
}

// readiness is the answer of /readyz. Why a check fails is in the log: this route is open.
type readiness struct {
	Ready      bool          `json:"ready"`
	Draining   bool          `json:"draining,omitempty"`
	Durability string        `json:"durability,omitempty"`
	Checks     []checkResult `json:"checks"`
}

type checkResult struct {
	Name   string  `json:"name"`
	OK     bool    `json:"ok"`
	Millis float64 `json:"duration_ms"`
}

// ready runs the checks and answers 200 or 503.
func (s *Server) ready(c *call) error {
	out := readiness{Ready: true, Durability: s.cfg.Durability, Checks: make([]checkResult, len(s.cfg.Checks))}
	for i, r := range RunChecks(c.Request.Context(), s.cfg.Checks) {
		k := s.cfg.Checks[i]
		out.Ready = out.Ready && (r.Err == nil || k.Optional)
		out.Checks[i] = checkResult{Name: k.Name, OK: r.Err == nil, Millis: float64(r.Took.Microseconds()) / 1000}
		if r.Err != nil {
			s.cfg.Logger.LogAttrs(c.Request.Context(), slog.LevelWarn, "not ready", slog.String("check", k.Name), slog.Any("error", r.Err))
		}
	}
	out.Draining = s.Leaving()
	out.Ready = out.Ready && !out.Draining
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if !out.Ready {
		status = http.StatusServiceUnavailable
	}
	c.Reply(status, body)
	return nil
}
