package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/adapters/proxy"
	"agentstream/cmd/agentstream/internal/process"
)

// TestMetricsAreDocumented compares the table of docs/monitor.md with what the roles register, both ways. What
// running processes show is compared by e2e's test of the same name.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/monitor.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	_, table, _ := strings.Cut(string(page), "\n## Metrics\n")
	table, _, _ = strings.Cut(table, "\n### ")
	for line := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if strings.HasPrefix(line, "| `agentstream_") {
			for _, name := range regexp.MustCompile("agentstream_[a-z_]+").FindAllString(cell, -1) {
				if documented[name] {
					t.Errorf("%s is in the table twice", name)
				}
				documented[name] = true
			}
		}
	}
	registered := registeredLabels(t)
	if len(registered) < 60 {
		t.Fatalf("only %d metrics were found", len(registered))
	}
	for _, name := range slices.Sorted(maps.Keys(registered)) {
		if !documented[name] {
			t.Errorf("%s is not in the table of docs/monitor.md", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if _, ok := registered[name]; !ok {
			t.Errorf("docs/monitor.md names %s, which no role has", name)
		}
	}
}

// registeredLabels returns the labels of all metrics that the roles register, by their names.
func registeredLabels(t *testing.T) map[string][]string {
	t.Helper()
	m := process.NewMetrics()
	m.RefillCounter()
	m.BackupAge()
	m.ArchiverHooks()
	m.ReaperHooks()
	m.RetentionHooks()
	m.TapHooks("a")
	m.SpanDrops()
	m.TapFull("a")
	newProxyMetrics(m.Registry).watch(m.Registry, new(proxy.Proxy))
	descs := make(chan *prometheus.Desc, 1000)
	m.Registry.Describe(descs)
	close(descs)
	registered := make(map[string][]string)
	form := regexp.MustCompile(`fqName: "(agentstream_[^"]+)".*variableLabels: \{([^}]*)\}`)
	constant := regexp.MustCompile(`(\w+)="`)
	for d := range descs {
		found := form.FindStringSubmatch(d.String())
		if found == nil {
			continue
		}
		labels := strings.Split(found[2], ",")
		for _, c := range constant.FindAllStringSubmatch(d.String()[strings.Index(d.String(), "constLabels"):], -1) {
			labels = append(labels, c[1])
		}
		registered[found[1]] = labels
	}
	return registered
}
