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

// Checker runs checks, once for all who ask at the same time or soon after one another: who asks need not be known.
// Make it with NewChecker. It is safe for concurrent use.
type Checker struct {
	checks []Check

	mu      sync.Mutex
	at      time.Time // of results
	results []CheckResult
}

// NewChecker returns what runs checks. It runs none yet.
func NewChecker(checks []Check) *Checker { return &Checker{checks: checks} }

// How old results may be for those who ask about readiness, and for the console.
const (
	fresh  = 500 * time.Millisecond
	recent = 2 * time.Second
)

// Results returns a result for each check, in their order, that is at most half a second old.
func (c *Checker) Results(ctx context.Context) []CheckResult { return c.within(ctx, fresh) }

// within returns results that are no older than most. Who waits for them does not end them by leaving.
func (c *Checker) within(ctx context.Context, most time.Duration) []CheckResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results == nil || time.Since(c.at) >= most {
		c.results = RunChecks(context.WithoutCancel(ctx), c.checks)
		c.at = time.Now()
	}
	return c.results
}

// failing returns the names of the checks that are not optional and fail.
func (s *Server) failing(ctx context.Context) (names []string) {
	for i, r := range s.checks.within(ctx, recent) {
		if k := s.cfg.Checks[i]; r.Err != nil && !k.Optional {
			names = append(names, k.Name)
		}
	}
	return names
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
	for i, r := range s.checks.Results(c.Request.Context()) {
		k := s.cfg.Checks[i]
		out.Ready = out.Ready && (r.Err == nil || k.Optional)
		out.Checks[i] = checkResult{Name: k.Name, OK: r.Err == nil, Millis: float64(r.Took.Microseconds()) / 1000}
		if r.Err != nil {
			s.cfg.Logger.LogAttrs(c.Request.Context(), slog.LevelWarn, "not ready", slog.String("check", k.Name),
				slog.Any("error", r.Err))
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
