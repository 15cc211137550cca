package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentstream/internal/testkit"
)

// TestMetricsAreDocumented: whatever a process of each role shows at /metrics is in the table of docs/monitor.md.
// That the table names nothing else is the test of the same name in cmd/agentstream.
func TestMetricsAreDocumented(t *testing.T) {
	beside(t)
	page, err := os.ReadFile("../../docs/monitor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Metrics\n")
	table, _, _ = strings.Cut(table, "\n### ")
	url, dsn := testkit.NATS(t).Server.ClientURL(), testkit.Postgres(t)
	migrate(t, dsn, url)
	upstream := pelican(t)
	server := []string{"--nats", url, "--postgres", dsn}
	for name, p := range map[string]*proc{
		"edge":    newProc(t, "edge", append(server, "--nats-ingest")...),
		"persist": newProc(t, "persist", append(server, "--blobs", t.TempDir())...),
		"dev":     newProc(t, "dev", "--data", t.TempDir()),
		"proxy":   newProc(t, "proxy", "--nats", url, "--upstream", "a="+upstream.URL),
	} {
		p.start()
		if p.addr != "" { // what is counted by label is shown when there is some
			resp, err := http.Post(p.url("/v1/agent/runs/metrics/events"), "application/json",
				bytes.NewReader([]byte(`{"type":"text.delta","payload":{"text":"x"}}`)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		r, err := http.Get("http://" + p.admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (agentstream_\w+) `).FindAllSubmatch(body, -1) {
			names = append(names, string(m[1]))
		}
		if len(names) < 20 || !slices.Contains(names, "agentstream_memory_returns_total") {
			t.Errorf("%s shows only %q", name, names)
		}
		for _, n := range names {
			if !strings.Contains(table, "`"+n+"`") {
				t.Errorf("%s shows %s, which is not in the table", name, n)
			}
		}
		t.Logf("%s: %d metrics", name, len(names))
		p.kill()
	}
}
