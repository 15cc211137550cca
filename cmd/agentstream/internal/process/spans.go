package process

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/spans"
	"agentstream/tap/sink"
)

// SpanFlags say where spans of a process's own work go.
type SpanFlags struct {
	CollectorFlags
	OTLPHeaders string `name:"otlp-headers" help:"Headers of requests to the collector, one a line: 'Authorization: Bearer …'. The environment, or its _FILE form, keeps them out of the process list." env:"AGENTSTREAM_OTLP_HEADERS" placeholder:"HEADERS"`
}

// CollectorFlags are SpanFlags without the headers: a tap has those of its sinks by that name.
type CollectorFlags struct {
	OTLP       string  `name:"otlp" help:"Collector that gets spans of this process's own work (requests, answers, batches): otlp+http://HOST:PORT, otlp+https, otlp+grpc or otlp+grpcs. Without it there are none." env:"AGENTSTREAM_OTLP" placeholder:"URL"`
	OTLPSample float64 `name:"otlp-sample" help:"Part of the work without a traceparent that has a span, from 0 to 1. Requests and messages with one are as it says." default:"0.01" env:"AGENTSTREAM_OTLP_SAMPLE" placeholder:"RATIO"`
}

// SpanDrops registers and returns the counter of spans that were lost. Call it once.
func (m *Metrics) SpanDrops() prometheus.Counter {
	return instruments{m.Registry}.counter("request_spans_dropped_total",
		"Spans of requests, answers and batches that the collector of --otlp did not take in time.")
}

// Open returns what makes spans of a role's work, and the part that sends them; nil when the flags switch it off.
func (f *SpanFlags) Open(role string, m *Metrics, log *slog.Logger) (*spans.Tracer, []Part, error) {
	return f.OpenWith(f.OTLPHeaders, role, m, log)
}

// OpenWith is SpanFlags.Open with headers from elsewhere.
func (f *CollectorFlags) OpenWith(headers, role string, m *Metrics, log *slog.Logger) (*spans.Tracer, []Part, error) {
	if f.OTLP == "" {
		return nil, nil, nil
	}
	u, err := url.Parse(f.OTLP)
	if err != nil {
		return nil, nil, errors.New("--otlp: want otlp+http://HOST:PORT") // the rest may hold a password
	}
	o := sink.Options{}
	if headers != "" {
		o.OTLP.Headers = cli.NewSecret(headers, "AGENTSTREAM_OTLP_HEADERS").Lines
	}
	to, err := sink.OpenCollector(u, o)
	if err != nil {
		return nil, nil, fmt.Errorf("--otlp: %w", err)
	}
	dropped := m.SpanDrops()
	t, err := spans.New(spans.Config{Sender: to, Service: "agentstream-" + role, Ratio: f.OTLPSample, Logger: log,
		Dropped: func(n int) { dropped.Add(float64(n)) }})
	if err != nil {
		return nil, nil, fmt.Errorf("--otlp-sample: %w", err)
	}
	return t, []Part{{Name: "spans", Run: t.Run}}, nil
}
