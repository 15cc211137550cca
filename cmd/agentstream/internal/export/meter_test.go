package export

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/persister/export"
	"agentstream/schema"
)

func TestExportMeter(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		quiet    bool
		want     []string
	}{
		{"terminal", true, false, []string{"[============            ]  50% · 1 of 2 runs · 500 events · 100.0 kB · ",
			"s left\r\x1b[K"}},
		{"lines", false, false, []string{"agentstream: 1 of 2 runs · 500 events · 100.0 kB · 50 events/s · 10s left\n"}},
		{"quiet", true, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				m := newExportMeter(&out, terminal.Screen{Terminal: c.terminal}, c.quiet)
				h := m.hooks()
				h.Planned(2, 1000, true)
				for range 120 {
					time.Sleep(100 * time.Millisecond)
					h.Progress(export.Summary{Runs: 1, Events: 500, Lines: 100_000})
				}
				m.Clear()
				m.summary(export.Summary{})
				for _, want := range c.want {
					if !strings.Contains(out.String(), want) {
						t.Errorf("%q lacks %q", out.String(), want)
					}
				}
				if c.quiet != (out.Len() == 0) {
					t.Errorf("it says %q", out.String())
				}
				if n := strings.Count(out.String(), "runs · "); !c.terminal && !c.quiet && n != 1 {
					t.Errorf("%d lines in 12 seconds", n)
				}
			})
		})
	}
}

// Of many runs that are not complete, a few are named.
func TestExportMeterBoundsItsNotices(t *testing.T) {
	var out bytes.Buffer
	h := newExportMeter(&out, terminal.Screen{}, true).hooks()
	for range 100 {
		h.Short(schema.RunKey{Tenant: "acme", Run: "r1"}, 0, 7, true)
		h.Short(schema.RunKey{Tenant: "acme", Run: "r1"}, 8, 0, false)
	}
	if n := strings.Count(out.String(), "\n"); n < 5 || n > exportNotices+1 ||
		!strings.Contains(out.String(), "run acme/r1: the archive has no events behind 7") {
		t.Errorf("%d notices: %s", n, out.String())
	}
}
