package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oasdiff/yaml"
)

// alarmRules are what deploy/alerts.yaml holds.
type alarmRules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Labels      struct{ Severity string }
			Annotations struct{ Summary, Runbook string }
		}
	}
}

// TestAlarms compares the alarms with what the roles show: every metric and every label of an expression is there,
// and each alarm has its paragraph in the runbook, which has no others.
func TestAlarms(t *testing.T) {
	text, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all alarmRules
	if text, err = yaml.YAMLToJSON(text); err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all.Groups) != 1 {
		t.Fatalf("%d groups, %v", len(all.Groups), err)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := registeredLabels(t)
	var names []string
	for _, r := range all.Groups[0].Rules {
		names = append(names, r.Alert)
		checkAlarm(t, r.Alert, r.Expr, shown)
		if want := "docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations.Runbook != want ||
			r.Annotations.Summary == "" {
			t.Errorf("%s: its runbook is %q, its summary %q", r.Alert, r.Annotations.Runbook, r.Annotations.Summary)
		}
		if !slices.Contains([]string{"page", "ticket"}, r.Labels.Severity) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels.Severity)
		}
	}
	var told []string
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		told = append(told, m[1])
	}
	if !slices.Equal(names, told) {
		t.Errorf("the alarms are %v, the runbook's paragraphs %v", names, told)
	}
	checkAlarmTests(t, names)
	path, err := exec.LookPath("promtool")
	if err != nil {
		return // Debian has it in the package prometheus; make monitoring installs it
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command(path, args...)
		cmd.Dir = "../../deploy"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v: %s", args, err, out)
		}
	}
}

// checkAlarmTests holds that promtool's tests have each alarm once with its cause and once silent.
func checkAlarmTests(t *testing.T, names []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Tests []struct {
			Rules []struct {
				Name   string            `json:"alertname"`
				Alerts []json.RawMessage `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if text, err = yaml.YAMLToJSON(text); err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range all.Tests {
		for _, r := range test.Rules {
			if len(r.Alerts) > 0 {
				fires[r.Name] = true
			} else {
				silent[r.Name] = true
			}
		}
	}
	for _, name := range names {
		if !fires[name] || !silent[name] {
			t.Errorf("%s: tested with its cause: %v, without: %v", name, fires[name], silent[name])
		}
	}
}

// dashboard is what of a file of deploy/grafana asks for metrics.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID      int
		Title   string
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

// TestDashboards compares the dashboards with what the roles show: each metric and each label of a query is there,
// and so is each label of a legend.
func TestDashboards(t *testing.T) {
	paths, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(paths) != 5 {
		t.Fatal(paths, err)
	}
	shown := registeredLabels(t)
	for _, path := range paths {
		var d dashboard
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		want := "agentstream-" + strings.TrimSuffix(filepath.Base(path), ".json")
		if err != nil || d.UID != want || len(d.Panels) == 0 {
			t.Errorf("%s: uid %q, %d panels, %v", path, d.UID, len(d.Panels), err)
		}
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d %q: its id is not its own, or it shows nothing", path, p.ID, p.Title)
			}
			ids[p.ID] = true
			for _, q := range p.Targets {
				checkAlarm(t, d.Title+", "+p.Title, q.Expr, shown)
				checkLegend(t, d.Title+", "+p.Title, q.Expr, q.LegendFormat)
			}
		}
	}
}

// checkLegend holds that what a legend names is left by the query.
func checkLegend(t *testing.T, name, expr, legend string) {
	t.Helper()
	groups := groupOf.FindAllStringSubmatch(expr, -1)
	for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(legend, -1) {
		keeps := func(g []string) bool { return slices.Contains(strings.Split(g[1], ", "), m[1]) }
		if len(groups) > 0 && !slices.ContainsFunc(groups, keeps) {
			t.Errorf("%s: the query does not keep %s", name, m[1])
		}
	}
}

var (
	metricOf = regexp.MustCompile(`(agentstream_[a-z_]+)(\{[^}]*\})?`)
	labelOf  = regexp.MustCompile(`(\w+)(?:=~|!=|!~|=)"`)
	groupOf  = regexp.MustCompile(`by \(([^)]*)\)`)
)

// checkAlarm checks the metrics and labels of an expression. A scrape adds the labels job and instance.
func checkAlarm(t *testing.T, name, expr string, shown map[string][]string) {
	t.Helper()
	var labels []string
	for _, m := range metricOf.FindAllStringSubmatch(expr, -1) {
		metric := m[1]
		own, ok := shown[metric]
		for _, end := range []string{"_bucket", "_count", "_sum"} {
			if base, cut := strings.CutSuffix(metric, end); cut && !ok {
				own, ok = shown[base]
				own = append(slices.Clone(own), "le")
			}
		}
		if !ok {
			t.Errorf("%s: no role shows %s", name, metric)
		}
		for _, l := range labelOf.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(own, l[1]) {
				t.Errorf("%s: %s has no label %s", name, metric, l[1])
			}
		}
		labels = append(labels, own...)
	}
	for _, g := range groupOf.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			l = strings.TrimSpace(l)
			if l != "job" && l != "instance" && !slices.Contains(labels, l) {
				t.Errorf("%s: no metric has the label %s", name, l)
			}
		}
	}
}
