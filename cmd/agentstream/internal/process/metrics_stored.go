package process

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/persister/blob"
	"agentstream/persister/retention"
	"agentstream/producers/reaper"
	"agentstream/schema"
)

// ArchiverHooks registers and returns what counts objects. Call it once.
func (m *Metrics) ArchiverHooks() blob.Hooks {
	runs := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_archived_runs_total",
		Help: "Runs that were written as objects."})
	size := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_archived_bytes_total",
		Help: "Bytes of these objects."})
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentstream_archive_failures_total",
		Help: "Runs that could not be written as objects: hole, events of the run are missing; other, it is tried again."}, []string{"kind"})
	backlog := prometheus.NewGauge(prometheus.GaugeOpts{Name: "agentstream_archive_backlog_runs",
		Help: "Runs that have ended and are not yet objects."})
	orphans := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_archive_orphans_total",
		Help: "Objects that no run needed, removed."})
	m.Registry.MustRegister(runs, size, failed, backlog, orphans)
	return blob.Hooks{
		Archived: func(_ schema.RunKey, _ *blob.Index, bytes int64, _ time.Duration) {
			runs.Inc()
			size.Add(float64(bytes))
		},
		Failed: func(_ schema.RunKey, err error) {
			kind := "other"
			if errors.Is(err, blob.ErrHole) {
				kind = "hole"
			}
			failed.WithLabelValues(kind).Inc()
		},
		Backlog: func(n int) { backlog.Set(float64(n)) },
		Audited: func(a blob.Audit) { orphans.Add(float64(a.Removed)) },
	}
}

// RetentionHooks registers and returns what counts what retention removes. Call it once.
func (m *Metrics) RetentionHooks() retention.Hooks {
	removed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentstream_retention_removed_total",
		Help: "What retention has removed: runs (marked as expired), deleted (runs whose session was deleted), cooled (runs whose rows went), events, partitions, blobs, messages (of the log), tombstones."}, []string{"kind"})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_retention_failures_total",
		Help: "Things that retention could not do and tries again."})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "agentstream_retention_pass_seconds",
		Help:    "Time of one pass.",
		Buckets: []float64{.01, .1, 1, 10, 60, 300, 900}})
	m.Registry.MustRegister(removed, failed, took)
	return retention.Hooks{Passed: func(r retention.Report, err error) {
		for kind, n := range map[string]int64{"runs": int64(r.Expired), "deleted": int64(r.Deleted),
			"feeds": int64(r.Trimmed), "cooled": int64(r.Cooled), "events": r.Events, "partitions": int64(r.Days),
			"blobs": int64(r.Blobs), "messages": int64(r.Messages), "tombstones": int64(r.Tombstones)} {
			removed.WithLabelValues(kind).Add(float64(n))
		}
		failed.Add(float64(r.Failed))
		if err != nil {
			failed.Inc()
		}
		took.Observe(r.Took.Seconds())
	}}
}

// ReaperHooks registers and returns what counts runs that are ended for their writers. Call it once.
func (m *Metrics) ReaperHooks() reaper.Hooks {
	reaped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentstream_reaped_runs_total",
		Help: "Runs that were ended because their writer is gone: owned, it did not answer; unowned, nobody could be asked."}, []string{"kind"})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_reaper_failures_total",
		Help: "Runs, and lists of runs, that could not be looked at."})
	m.Registry.MustRegister(reaped, failed)
	return reaper.Hooks{
		Reaped: func(_ schema.RunKey, owned bool) {
			kind := "unowned"
			if owned {
				kind = "owned"
			}
			reaped.WithLabelValues(kind).Inc()
		},
		Failed: func(error) { failed.Inc() },
	}
}
