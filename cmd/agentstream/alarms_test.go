package main

import (
	"encoding/json"
	"os"
	"os/exec"
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

// TestAlarms compares the alarms with what the roles show: every metric and every label of an expression is there, and each alarm
// has its paragraph in the runbook, which has no others.
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
		if want := "docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations.Runbook != want || r.Annotations.Summary == "" {
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
	path, err := exec.LookPath("promtool")
	if err != nil {
		return // Debian has it in the package prometheus
	}
	if out, err := exec.Command(path, "check", "rules", "../../deploy/alerts.yaml").CombinedOutput(); err != nil {
		t.Errorf("promtool: %v: %s", err, out)
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
