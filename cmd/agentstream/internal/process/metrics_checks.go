package process

import (
	"runtime"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge"
)

// checkStates shows the checks of readiness as they were when somebody asked last, which a scrape does. It has the
// names of then alone: a process that waits at its start has others than later.
type checkStates struct {
	desc *prometheus.Desc
	last atomic.Pointer[map[string]bool]
}

func newCheckStates(r instruments) *checkStates {
	desc := prometheus.NewDesc("agentstream_check_up", "1 while a check of readiness passes, 0 while it fails.",
		[]string{"check"}, nil)
	return register(r, &checkStates{desc: desc})
}

// set keeps the results of checks.
func (c *checkStates) set(checks []edge.Check, results []edge.CheckResult) {
	states := make(map[string]bool, len(checks))
	for i, r := range results {
		states[checks[i].Name] = r.Err == nil
	}
	c.last.Store(&states)
}

// Describe sends the one description.
func (c *checkStates) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect sends a value for each check.
func (c *checkStates) Collect(out chan<- prometheus.Metric) {
	states := c.last.Load()
	if states == nil {
		return
	}
	for name, up := range *states {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, oneIf(up), name)
	}
}

// addBuild shows which program this is.
func addBuild(r instruments) {
	r.gauges("build_info", "1, with the version of the program and of Go.", "version",
		"go").WithLabelValues(cli.Version(), runtime.Version()).Set(1)
}
