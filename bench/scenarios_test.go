package bench

import (
	"context"
	"os"
	"testing"
	"time"

	loadgen "agentstream/bench/load"
)

// scenario is a load as agentstream-bench puts it on a server.
type scenario struct {
	name string
	sdk  bool
	cfg  loadgen.Config
}

var scenarios = []scenario{
	{"S1SSE", false, loadgen.Config{Scenario: loadgen.FanOut, Watchers: 1000}},
	{"S1WebSocket", false, loadgen.Config{Scenario: loadgen.FanOut, Watchers: 1000, Transport: loadgen.WebSocket}},
	{"S2SSE", false, loadgen.Config{Scenario: loadgen.ManyRuns, Runs: 500, Watchers: 2, Rate: 10000}},
	{"S2WebSocket", false, loadgen.Config{Scenario: loadgen.ManyRuns, Runs: 500, Watchers: 2, Rate: 10000,
		Transport: loadgen.WebSocket}},
	{"S3SSE", false, loadgen.Config{Scenario: loadgen.Idle, Runs: 500, Watchers: 10}},
	{"S3WebSocket", false, loadgen.Config{Scenario: loadgen.Idle, Runs: 500, Watchers: 10, Transport: loadgen.WebSocket}},
	{"S4OneClient", false, loadgen.Config{Scenario: loadgen.Replay, Watchers: 1, Events: 10000}},
	{"S4FiftyClients", false, loadgen.Config{Scenario: loadgen.Replay, Watchers: 50, Events: 10000}},
	{"S4Long", false, loadgen.Config{Scenario: loadgen.Replay, Watchers: 1, Events: 100000}},
	{"S5OneRun", false, loadgen.Config{Scenario: loadgen.Publish, Runs: 1, Batch: 16}},
	{"S5ManyRuns", false, loadgen.Config{Scenario: loadgen.Publish, Runs: 64, Batch: 64}},
	{"S5OneRunSDK", true, loadgen.Config{Scenario: loadgen.Publish, Runs: 1, Batch: 1}},
	{"S5ManyRunsSDK", true, loadgen.Config{Scenario: loadgen.Publish, Runs: 64, Batch: 1}},
}

// small makes the scenario one that proves the harness and measures nothing.
func (s scenario) small() scenario {
	c := &s.cfg
	c.Runs, c.Watchers, c.Events = min(c.Runs, 20), min(c.Watchers, 10), min(c.Events, 1000)
	c.Rate = min(c.Rate, 500)
	c.Duration, c.Warm = 300*time.Millisecond, 100*time.Millisecond
	return s
}

func (s scenario) run(t testing.TB) *loadgen.Result {
	t.Helper()
	h := newHouse(t)
	cfg := s.cfg
	cfg.URL, cfg.Tenant, cfg.Settle = h.url, tenant, 20*time.Second
	if s.sdk {
		cfg.Log = h.log
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		// This process is the edge and the load, the NATS server is its child.
		cfg.Probe = loadgen.OfProcess(os.Getpid())
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := loadgen.Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Fatalf("%v; %+v", err, *r)
	}
	return r
}

// BenchmarkScenarios reports the figures of agentstream-bench for an edge in this process and a NATS
// server beside it, without a persister. CPU is of all three: edge, server and load; memory is
// not told, because both ends of each connection are in it. b.N is not looked at: a scenario has a
// length. With -short everything is small and the figures mean nothing.
func BenchmarkScenarios(b *testing.B) {
	for _, s := range scenarios {
		if testing.Short() {
			s = s.small()
		}
		b.Run(s.name, func(b *testing.B) {
			r := s.run(b)
			b.ReportMetric(0, "ns/op") // of the whole scenario: nothing to compare
			report := func(v float64, unit string) {
				if v > 0 {
					b.ReportMetric(v, unit)
				}
			}
			report(r.AckedPerSecond, "acked/s")
			report(r.DeliveredPerSecond, "delivered/s")
			report(r.Ack.P99, "ack_p99_ms")
			report(r.Latency.P50, "p50_ms")
			report(r.Latency.P99, "p99_ms")
			if r.Server != nil {
				report(r.Server.PerMillion, "cpu_s/M")
			}
		})
	}
}

// TestScenarios holds every scenario to completeness, with small numbers. It looks at no time.
func TestScenarios(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s := s.small()
			r := s.run(t)
			watchers := int64(max(s.cfg.Watchers, 1))
			if r.Acked == 0 || r.Delivered != r.Expected || r.Expected%(r.Acked*watchers) != 0 {
				t.Errorf("%d acknowledged, %d of %d delivered", r.Acked, r.Delivered, r.Expected)
			}
			if s.sdk != (r.Publisher == "sdk") {
				t.Errorf("published over %s", r.Publisher)
			}
		})
	}
}
