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

// health says that the process serves requests, nothing about what it depends on.
func (s *Server) health(c *call) error {
	c.reply(http.StatusOK, []byte(`{"status":"ok"}`))
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
	ctx, cancel := context.WithTimeout(c.r.Context(), checkTimeout)
	defer cancel()
	out := readiness{Ready: true, Durability: s.cfg.Durability, Checks: make([]checkResult, len(s.cfg.Checks))}
	var wg sync.WaitGroup
	for i, k := range s.cfg.Checks {
		wg.Go(func() {
			begun := time.Now()
			err := k.Run(ctx)
			out.Checks[i] = checkResult{Name: k.Name, OK: err == nil, Millis: float64(time.Since(begun).Microseconds()) / 1000}
			if err != nil {
				s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "not ready", slog.String("check", k.Name), slog.Any("error", err))
			}
		})
	}
	wg.Wait()
	for i, k := range out.Checks {
		out.Ready = out.Ready && (k.OK || s.cfg.Checks[i].Optional)
	}
	s.mu.Lock()
	out.Draining = s.draining
	s.mu.Unlock()
	out.Ready = out.Ready && !out.Draining
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if !out.Ready {
		status = http.StatusServiceUnavailable
	}
	c.reply(status, body)
	return nil
}
