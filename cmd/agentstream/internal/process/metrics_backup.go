package process

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BackupAge shows how old the last backup is, once one is known. It is safe for concurrent use.
type BackupAge struct {
	desc *prometheus.Desc
	at   atomic.Pointer[time.Time]
}

// BackupAge registers the age of the last backup.
func (m *Metrics) BackupAge() *BackupAge {
	b := &BackupAge{desc: prometheus.NewDesc("agentstream_backup_age_seconds",
		"Time since the last backup by agentstream backup began. Absent when none is known.", nil, nil)}
	m.Registry.MustRegister(b)
	return b
}

// Set sets when the last backup began.
func (b *BackupAge) Set(at time.Time) { b.at.Store(&at) }

// Describe implements prometheus.Collector.
func (b *BackupAge) Describe(out chan<- *prometheus.Desc) { out <- b.desc }

// Collect implements prometheus.Collector.
func (b *BackupAge) Collect(out chan<- prometheus.Metric) {
	if at := b.at.Load(); at != nil {
		out <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, time.Since(*at).Seconds())
	}
}
