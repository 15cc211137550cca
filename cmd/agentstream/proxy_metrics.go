package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"agentstream/adapters/proxy"
	"agentstream/internal/spans"
)

// proxyMetrics turns the proxy's hooks into Prometheus instruments.
type proxyMetrics struct {
	calls     *prometheus.CounterVec
	open      *prometheus.GaugeVec
	bytes     *prometheus.CounterVec
	lost      *prometheus.CounterVec
	lostBytes *prometheus.CounterVec
	kept      *prometheus.CounterVec
	took      *prometheus.HistogramVec
}

func newProxyMetrics(r *prometheus.Registry) *proxyMetrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "agentstream_proxy_" + name, Help: help}
	}
	m := &proxyMetrics{
		calls: prometheus.NewCounterVec(opts("calls_total",
			"Requests whose client's side is over. recorded is no for what passes without a run."),
			[]string{"upstream", "outcome", "recorded"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "agentstream_proxy_calls_open",
			Help: "Requests under way."}, []string{"upstream"}),
		bytes: prometheus.NewCounterVec(opts("bytes_total", "Bytes of bodies, by direction as the client sees it."),
			[]string{"upstream", "direction"}),
		lost: prometheus.NewCounterVec(opts("losses_total",
			"Parts of calls that runs lack. told is no where only this process's log says so."), []string{"reason", "told"}),
		lostBytes: prometheus.NewCounterVec(opts("lost_bytes_total", "Bytes of them, as they came over the wire."),
			[]string{"reason", "told"}),
		kept: prometheus.NewCounterVec(opts("kept_total",
			"Events of providers that the catalogue has no place for, or that cannot be read: they are under custom.*."), []string{"provider"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agentstream_proxy_call_seconds",
			Help:    "Time of requests, answers included.",
			Buckets: prometheus.ExponentialBuckets(0.01, 3, 10)}, []string{"upstream"}),
	}
	r.MustRegister(m.calls, m.open, m.bytes, m.lost, m.lostBytes, m.kept, m.took)
	return m
}

// watch adds what is asked of the proxy whenever somebody looks.
func (m *proxyMetrics) watch(r *prometheus.Registry, p *proxy.Proxy) {
	gauge := func(name, help string, of func(proxy.Stats) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "agentstream_proxy_" + name, Help: help},
			func() float64 { return of(p.Stats()) }))
	}
	gauge("held_bytes", "Memory of buffers that wait for the log.", func(s proxy.Stats) float64 { return float64(s.Held) })
	gauge("recording_calls", "Calls that are not stored whole.",
		func(s proxy.Stats) float64 { return float64(s.Recording) })
	gauge("known_runs", "Runs that are remembered.", func(s proxy.Stats) float64 { return float64(s.Runs) })
}

func (m *proxyMetrics) hooks() proxy.Hooks {
	word := func(b bool) string {
		if b {
			return "yes"
		}
		return "no"
	}
	return proxy.Hooks{
		Opened: func(up string) { m.open.WithLabelValues(up).Inc() },
		Closed: func(d proxy.Done) {
			m.open.WithLabelValues(d.Upstream).Dec()
			m.calls.WithLabelValues(d.Upstream, string(d.Outcome), word(d.Recorded)).Inc()
			m.bytes.WithLabelValues(d.Upstream, "sent").Add(float64(d.Sent))
			m.bytes.WithLabelValues(d.Upstream, "received").Add(float64(d.Received))
			m.took.WithLabelValues(d.Upstream).Observe(d.Took.Seconds())
		},
		Kept: func(provider string, events int) { m.kept.WithLabelValues(provider).Add(float64(events)) },
		Lost: func(l proxy.Loss) {
			m.lost.WithLabelValues(l.Reason, word(l.Recorded)).Inc()
			m.lostBytes.WithLabelValues(l.Reason, word(l.Recorded)).Add(float64(l.Bytes))
		},
	}
}

// proxySpan is the span of a request through the proxy.
type proxySpan struct{ *spans.Span }

// Close implements proxy.RequestSpan.
func (s proxySpan) Close(d proxy.Done) {
	s.Span.Close(spans.End{Route: "proxy " + d.Upstream,
		Failed: d.Outcome == proxy.OutcomeUnreachable || d.Outcome == proxy.OutcomeBroken})
}

// openProxySpans returns what opens the spans of requests through the proxy; nil: there are none.
func openProxySpans(t *spans.Tracer) func(parent string) proxy.RequestSpan {
	if t == nil {
		return nil
	}
	return func(parent string) proxy.RequestSpan {
		s := t.Open(parent)
		if s == nil {
			return nil
		}
		return proxySpan{s}
	}
}
