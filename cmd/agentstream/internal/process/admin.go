package process

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"agentstream/edge"
	"agentstream/edge/gate"
	"agentstream/edge/secure"
	"agentstream/persister"
)

// Admin serves operators: metrics, profiles, health. It is a listener of its own, so that nothing of
// this is ever on the public one.
type Admin struct {
	Metrics    *Metrics
	Checks     []edge.Check
	Durability string
	// the version of the tables that the process was written for; 0: it has none of its own
	Tables    int64
	Persister *persister.Persister // nil where none runs
	Leaving   func() bool          // whether the process goes away, and is not ready therefore; nil: it does not say
	Log       *slog.Logger

	hosts   []string      // names by which operators ask, besides those that Guard knows
	checker *edge.Checker // of Checks
}

func (a *Admin) handler() http.Handler {
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(a.Metrics.Registry, promhttp.HandlerOpts{})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		a.runChecks(r.Context())
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { writeReadiness(w, a.ask(r.Context())) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("/metrics\n/debug/pprof/\n/healthz\n/readyz\n"))
	})
	return mux
}

// health is for probes, on a listener that others than operators may reach: it has no reasons.
func (a *Admin) health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		all := a.ask(r.Context())
		out := readiness{Ready: all.Ready, Draining: all.Draining, Checks: make(map[string]string, len(all.Checks))}
		for name, text := range all.Checks {
			if out.Checks[name] = "ok"; text != "ok" {
				out.Checks[name] = "failed"
			}
		}
		writeReadiness(w, out)
	})
	return mux
}

func alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// pipeline is one partition's persister for people.
type pipeline struct {
	Stream        string    `json:"stream"`
	State         string    `json:"state"` // active, or standby while another process stores the partition
	Alarm         string    `json:"alarm,omitempty"`
	LagMessages   *uint64   `json:"lag_messages,omitempty"` // this and what follows is absent while it is not known
	LagEvents     *uint64   `json:"lag_events_estimate,omitempty"`
	LagSeconds    *float64  `json:"lag_seconds,omitempty"`
	LagAt         time.Time `json:"lag_at,omitzero"` // when the log was last asked: the lag is as old
	WindowLeft    float64   `json:"window_left_seconds,omitempty"`
	SizeLeft      *float64  `json:"size_left,omitempty"`
	RetryingSince time.Time `json:"retrying_since,omitzero"`
	LastError     string    `json:"last_error,omitempty"`
	LastCommit    time.Time `json:"last_commit,omitzero"`
	BatchRows     int       `json:"batch_rows"`
	HeldBytes     int       `json:"held_bytes"`
	Rows          uint64    `json:"rows"`
	Repeated      uint64    `json:"repeated_rows"`
	Dropped       uint64    `json:"dropped_rows"`
	DeadLetters   uint64    `json:"dead_letters"`
	Conflicts     uint64    `json:"conflicts"`
	Lost          uint64    `json:"lost_messages"`
}

func pipelineOf(s persister.Status) pipeline {
	p := pipeline{
		Stream: s.Stream, State: "active", Alarm: s.Alarm, LagAt: s.LagAt,
		RetryingSince: s.RetryingSince, LastError: s.LastError, LastCommit: s.LastCommit, BatchRows: s.BatchRows,
		HeldBytes: s.HeldBytes,
		Rows:      s.Inserted, Repeated: s.Repeated, Dropped: s.Dropped, DeadLetters: s.DeadLetters, Conflicts: s.Conflicts,
		Lost: s.Lost,
	}
	if s.Standby {
		p.State = "standby"
	}
	if s.LagAt.IsZero() {
		return p
	}
	age := 0.0
	if !s.Lag.Oldest.IsZero() {
		age = time.Since(s.Lag.Oldest).Seconds()
	}
	p.LagMessages, p.LagEvents, p.LagSeconds = &s.Lag.Messages, &s.LagEvents, &age
	if s.Lag.Window > 0 {
		p.WindowLeft = s.Lag.WindowLeft(time.Now()).Seconds()
	}
	if s.Lag.Bounded {
		p.SizeLeft = &s.Lag.Room
	}
	return p
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready      bool              `json:"ready"`
	Draining   bool              `json:"draining,omitempty"`
	Durability string            `json:"durability,omitempty"`
	Checks     map[string]string `json:"checks"`
	// what an operator must look at; it does not change the status
	Degraded  []string   `json:"degraded,omitempty"`
	Tables    int64      `json:"tables_version,omitempty"`
	Persister []pipeline `json:"persister,omitempty"`
}

// runChecks runs the checks, and shows their results.
func (a *Admin) runChecks(ctx context.Context) []edge.CheckResult {
	results := a.checker.Results(ctx)
	a.Metrics.checks.set(a.Checks, results)
	return results
}

// ask runs the checks. The process is ready when all pass that are not optional.
func (a *Admin) ask(ctx context.Context) readiness {
	answer := readiness{Ready: true, Durability: a.Durability, Tables: a.Tables, Checks: make(map[string]string)}
	for i, result := range a.runChecks(ctx) {
		c := a.Checks[i]
		answer.Checks[c.Name] = "ok"
		if result.Err != nil {
			answer.Ready = answer.Ready && c.Optional
			answer.Checks[c.Name] = result.Err.Error()
			if c.Optional {
				answer.Degraded = append(answer.Degraded, c.Name+": "+result.Err.Error())
			}
		}
	}
	if a.Persister != nil {
		for _, s := range a.Persister.Status() {
			answer.Persister = append(answer.Persister, pipelineOf(s))
			if s.Degraded {
				answer.Degraded = append(answer.Degraded, s.Stream+": "+s.Alarm)
			}
		}
	}
	answer.Degraded = append(answer.Degraded, a.Metrics.Losses.all()...)
	answer.Draining = a.Leaving != nil && a.Leaving()
	answer.Ready = answer.Ready && !answer.Draining
	return answer
}

// writeReadiness answers 200 or 503.
func writeReadiness(w http.ResponseWriter, answer readiness) {
	w.Header().Set("Content-Type", "application/json")
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(answer) // the client is gone
}

// adminSpares are descriptors that are kept for operators: a process without any left is one to look at.
const adminSpares = 4

// maxProbes bounds the connections of --health-listen: one more closes the oldest.
const maxProbes = 64

// serveHealth answers on ln until ctx ends. Anybody may ask: over HTTP/1.1, as probes do, so that a connection is one
// request at a time, and with few connections.
func (a *Admin) serveHealth(ctx context.Context, ln net.Listener) error {
	bound, err := gate.New(gate.Config{Unknown: maxProbes})
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: Guard(a.health(), ln.Addr(), a.hosts...), ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second,
		IdleTimeout:  time.Minute, MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug)}
	d := &LimitListener{Listener: ln, spares: adminSpares, log: a.Log, failed: a.Metrics.notAccepted.Inc}
	defer d.Wait()
	return ServeHTTP(ctx, srv, bound.Listen(d), Ending{Drain: time.Second})
}

// serve answers operators on ln until ctx ends.
func (a *Admin) serve(ctx context.Context, ln net.Listener, h http.Handler, tls *secure.Files) error {
	srv := &http.Server{Handler: Guard(h, ln.Addr(), a.hosts...), ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout: time.Minute, Protocols: Protocols(),
		ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug)}
	d := &LimitListener{Listener: ln, spares: adminSpares, log: a.Log, failed: a.Metrics.notAccepted.Inc, tls: tls}
	defer d.Wait()
	return ServeHTTP(ctx, srv, d, Ending{Drain: time.Second}) // a profile that is being taken is broken off
}
