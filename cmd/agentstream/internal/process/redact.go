package process

import (
	"fmt"
	"log/slog"

	"agentstream/schema/redact"
)

// RedactFlags say what is hidden in events before they are stored.
type RedactFlags struct {
	Redact string `help:"File with rules by tenant of what is hidden in events before they are stored (JSON; docs/redaction.md). It is read again when it changes. agentstream redact --check FILE checks it." env:"AGENTSTREAM_REDACT" placeholder:"FILE"`
}

// OpenRules reads the file of rules and keeps it in force; nil where there is none. It does not start with a file that cannot
// be read.
func (f *RedactFlags) OpenRules(m *Metrics, log *slog.Logger) (*redact.File, error) {
	if f.Redact == "" {
		return nil, nil
	}
	file, err := redact.Open(redact.FileConfig{Path: f.Redact, Logger: log, Found: m.CountRedacted})
	if err != nil {
		return nil, fmt.Errorf("--redact: %w", err)
	}
	return file, nil
}

// CountRedacted counts what was hidden in events that are stored.
func (m *Metrics) CountRedacted(tenant, rule string, count int) {
	m.redacted.WithLabelValues(rule).Add(float64(count))
	if label := m.tenants.label(tenant); label != "" {
		m.tenants.redacted.WithLabelValues(label, rule).Add(float64(count))
	}
}
