package otlp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"agentstream/schema"
)

// chatUse is what one request to a model adds to the metrics.
type chatUse struct {
	seq                    schema.Seq // of the event that has ended it
	model, provider, fault string
	seconds                float64
	used                   tokens
}

// Bounds of the buckets, as the conventions want them.
var (
	tokenBounds  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	secondBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
)

// seriesKey names one series of a metric.
type seriesKey struct{ model, provider, fault, token string }

func (k seriesKey) attributes() []attribute {
	all := []attribute{text("gen_ai.operation.name", "chat")}
	for _, a := range []struct{ key, v string }{{"gen_ai.provider.name", k.provider}, {"gen_ai.request.model", k.model},
		{"error.type", k.fault}, {"gen_ai.token.type", k.token}} {
		if a.v != "" {
			all = append(all, text(a.key, clip(a.v, maxName)))
		}
	}
	return all
}

// series are the points of a metric, in the order in which they came.
type series struct {
	bounds []float64
	keys   []seriesKey
	points map[seriesKey]*metricspb.HistogramDataPoint
}

func (s *series) observe(k seriesKey, v float64) {
	p := s.points[k]
	if p == nil {
		p = &metricspb.HistogramDataPoint{Attributes: k.attributes(), ExplicitBounds: s.bounds,
			BucketCounts: make([]uint64, len(s.bounds)+1), Sum: new(float64), Min: &v, Max: &v}
		s.keys = append(s.keys, k)
		s.points[k] = p
	}
	i, _ := slices.BinarySearch(s.bounds, v) // a bound is in the bucket below it
	p.BucketCounts[i]++
	p.Count++
	*p.Sum += v
	low, high := min(*p.Min, v), max(*p.Max, v)
	p.Min, p.Max = &low, &high
}

// metric returns the series as one metric of deltas.
func (s *series) metric(name, unit string, from, to uint64) *metricspb.Metric {
	h := &metricspb.Histogram{AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA}
	for _, k := range s.keys {
		p := s.points[k]
		p.StartTimeUnixNano, p.TimeUnixNano = from, to
		h.DataPoints = append(h.DataPoints, p)
	}
	return &metricspb.Metric{Name: name, Unit: unit, Data: &metricspb.Metric_Histogram{Histogram: h}}
}

// metricsOf returns what requests to models add to the two metrics of clients.
func metricsOf(service string, uses []chatUse, from, to time.Time) *metricspb.MetricsData {
	spent := series{bounds: tokenBounds, points: map[seriesKey]*metricspb.HistogramDataPoint{}}
	lasted := series{bounds: secondBounds, points: map[seriesKey]*metricspb.HistogramDataPoint{}}
	for _, u := range uses {
		lasted.observe(seriesKey{u.model, u.provider, u.fault, ""}, u.seconds)
		if u.used.known {
			spent.observe(seriesKey{u.model, u.provider, "", "input"}, float64(u.used.input))
			spent.observe(seriesKey{u.model, u.provider, "", "output"}, float64(u.used.output))
		}
	}
	start, end := unixNano(from), unixNano(to)
	scope := &metricspb.ScopeMetrics{Scope: &commonpb.InstrumentationScope{Name: scopeName}, SchemaUrl: schemaURL,
		Metrics: []*metricspb.Metric{lasted.metric("gen_ai.client.operation.duration", "s", start, end)}}
	if len(spent.keys) > 0 {
		scope.Metrics = append(scope.Metrics, spent.metric("gen_ai.client.token.usage", "{token}", start, end))
	}
	of := &metricspb.ResourceMetrics{Resource: resource(service), ScopeMetrics: []*metricspb.ScopeMetrics{scope}}
	return &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{of}}
}

// use returns what a request that has ended adds to the metrics.
func (c *chat) use(used tokens) *chatUse {
	length := time.Duration(c.pb.EndTimeUnixNano - c.pb.StartTimeUnixNano)
	return &chatUse{model: c.name, provider: c.provider, fault: c.fault, seconds: length.Seconds(), used: used}
}

// maxUses bounds the requests to models that wait for the tap's place to move.
const maxUses = 1 << 16

// runUses are requests to models of a run that were sent, of batches after which the tap's place has not moved.
type runUses struct {
	list []chatUse
	last schema.Seq // newest event that was sent
}

// count keeps what was sent of a run, through an event, for the metrics, until Confirm.
func (x *Exporter) count(key schema.RunKey, all []made, through schema.Seq) {
	if !x.cfg.Metrics {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	u := x.uses[key]
	for _, m := range all {
		if m.use == nil || x.waiting >= maxUses {
			continue
		}
		if u == nil {
			u = new(runUses)
			x.uses[key] = u
		}
		use := *m.use
		use.seq = m.seq
		u.list = append(u.list, use)
		x.waiting++
	}
	if u != nil {
		u.last = max(u.last, through)
	}
}

// uncount drops what waits of a run and will be counted again, where an event comes next: what that event and those
// after it have made. All of it, if events have passed by: then another process has gone on with the run, and counts.
func (x *Exporter) uncount(key schema.RunKey, next schema.Seq) {
	x.mu.Lock()
	defer x.mu.Unlock()
	u := x.uses[key]
	if u == nil {
		return
	}
	keep, _ := slices.BinarySearchFunc(u.list, next, func(c chatUse, s schema.Seq) int { return cmp.Compare(c.seq, s) })
	if next > u.last+1 {
		keep = 0
	}
	x.waiting -= len(u.list) - keep
	u.list, u.last = u.list[:keep], min(u.last, next-1)
	if keep == 0 {
		delete(x.uses, key)
	}
}

// Confirm implements tap.Confirmer: it sends the metrics of what was written of runs. They are sent once, also when
// that fails: a collector adds up what it gets, so that twice would be wrong where once too few is a gap.
func (x *Exporter) Confirm(ctx context.Context, runs []schema.RunKey) error {
	var all []chatUse
	x.mu.Lock()
	for _, key := range runs {
		if u := x.uses[key]; u != nil {
			all = append(all, u.list...)
			delete(x.uses, key)
		}
	}
	x.waiting -= len(all)
	now := x.cfg.Now()
	from := cmp.Or(x.metered, now.Add(-time.Millisecond))
	if len(all) > 0 {
		x.metered = now
	}
	x.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := x.cfg.Sender.SendMetrics(ctx, metricsOf(x.cfg.Service, all, from, now)); err != nil {
		return fmt.Errorf("metrics of %d requests to models are lost: %w", len(all), err)
	}
	return nil
}
