package redaction

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/schema/redact"
)

// TestRulesOfACommand: a text is read from a file without the line feed at its end, and what cannot be applied is refused.
func TestRulesOfACommand(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		cmd  RedactCmd
		want string // of an error; "" for none
	}{
		"text":           {RedactCmd{TextFile: file("text", "hunter22\n"), Apply: true}, ""},
		"short text":     {RedactCmd{TextFile: file("short", "abc\n")}, "4 to 65536"},
		"no text":        {RedactCmd{TextFile: filepath.Join(dir, "none")}, "--text-file"},
		"nothing":        {RedactCmd{}, "is required"},
		"rules":          {RedactCmd{Redact: file("rules", `{"*":{"rules":[{"name":"own","pattern":"ACME-[0-9]+"}]}}`), Apply: true}, ""},
		"finds own mark": {RedactCmd{Redact: file("mark", `{"*":{"rules":[{"name":"own","pattern":"[a-z]+"}]}}`), Apply: true}, "in the marks"},
		"dry run of it":  {RedactCmd{Redact: filepath.Join(dir, "mark"), DryRun: true}, ""},
	} {
		rules, err := c.cmd.rules()
		if c.want == "" && (err != nil || rules("acme") == nil) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := RedactCmd{TextFile: filepath.Join(dir, "text")}
	rules, err := c.rules()
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := rules("acme").Text("is hunter22!"); got != "is [redacted:"+redact.LiteralName+"]!" {
		t.Errorf("it becomes %q", got)
	}
}

// TestDays: days are checked, and become what the archive has.
func TestDays(t *testing.T) {
	c := RedactCmd{Since: "2026-11-29"}
	if err := c.days(); err != nil || c.Since != "20261129" {
		t.Errorf("%q, %v", c.Since, err)
	}
	c = RedactCmd{Until: "yesterday"}
	if err := c.days(); err == nil || !strings.Contains(err.Error(), "--until") {
		t.Errorf("%v", err)
	}
}
