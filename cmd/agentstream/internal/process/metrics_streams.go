package process

import (
	"github.com/prometheus/client_golang/prometheus"

	"agentstream/internal/natskit"
)

// streamMetrics show the streams of the log as their leaders describe them.
type streamMetrics struct {
	faults  *prometheus.GaugeVec
	current *prometheus.GaugeVec
	lag     *prometheus.GaugeVec
	empty   prometheus.Gauge
}

func newStreamMetrics(r instruments) streamMetrics {
	return streamMetrics{
		faults: r.gauges("stream_faults", "What is wrong with a stream of the log: missing, settings (events are lost or refused), "+
			"replicas (too few, or settings differ), silent (it does not answer, as without a leader).", "stream", "kind"),
		current: r.gauges("stream_replica_current",
			"1 while a replica beside the leader has what the leader has, 0 while it lags or is offline.", "stream", "peer"),
		lag:   r.gauges("stream_replica_lag_operations", "Operations that a replica lacks.", "stream", "peer"),
		empty: r.gauge("log_empty", "1 while the log is empty and something of it is stored in the archive: an alarm."),
	}
}

// SetStreams shows the streams. What is not known of a stream is absent.
func (m *Metrics) SetStreams(streams []natskit.StreamHealth) {
	s := &m.streamHealth
	s.current.Reset() // servers may have been replaced
	s.lag.Reset()
	for i := range streams {
		h := &streams[i]
		for kind, is := range map[string]bool{"missing": h.Missing, "settings": len(h.Wrong) > 0,
			"replicas": len(h.Odd) > 0, "silent": h.Silent != nil} {
			s.faults.WithLabelValues(h.Name, kind).Set(oneIf(is))
		}
		for _, p := range h.Peers {
			s.current.WithLabelValues(h.Name, p.Name).Set(oneIf(p.Current && !p.Offline))
			s.lag.WithLabelValues(h.Name, p.Name).Set(float64(p.Lag))
		}
	}
}

// EmptyLog shows whether the log is empty beside an archive that is not.
func (m *Metrics) EmptyLog(is bool) { m.streamHealth.empty.Set(oneIf(is)) }

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
