package process

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/persister"
)

// TapFull registers and returns what shows that a tap waits because it has too many dead letters. Call it once.
func (m *Metrics) TapFull(name string) func(full bool) {
	full := instruments{m.Registry}.gauges("tap_dead_letters_full",
		"1 while the tap waits because it has as many dead letters as are kept.", "tap").WithLabelValues(name)
	return func(on bool) {
		full.Set(0)
		if on {
			full.Set(1)
		}
	}
}

// TapHooks registers and returns what counts what a tap delivers, and measures its lag. Call it once.
func (m *Metrics) TapHooks(name string) persister.Hooks {
	r := instruments{m.Registry}
	delivered := r.counters("tap_events_total", "Events delivered to the tap's sink.", "tap", "stream")
	took := r.histograms("tap_batch_seconds", "Time of one batch, places included.",
		prometheus.ExponentialBuckets(0.001, 4, 9), "tap")
	letters := r.counters("tap_dead_letters_total", "Events that were kept as dead letters, by reason.", "tap", "reason")
	failures := r.counters("tap_failures_total", "Attempts to read or to deliver that failed and are repeated.", "tap",
		"stream")
	messages := r.gauges("tap_lag_messages", "Packs that are in the log and not yet delivered.", "tap", "stream")
	seconds := r.gauges("tap_lag_seconds", "Age of the oldest pack that is not yet delivered.", "tap", "stream")
	active := r.gauges("tap_active", "1 while this process has the partition, 0 while another member has it.", "tap",
		"stream")
	held := r.gauges("tap_held_bytes", "Memory of events that are read and not yet delivered.", "tap", "stream")
	return persister.Hooks{
		Stored: func(stream string, s persister.Stored) {
			delivered.WithLabelValues(name, stream).Add(float64(s.Inserted))
			took.WithLabelValues(name).Observe(s.Took.Seconds())
		},
		DeadLetter: func(_, reason string) { letters.WithLabelValues(name, reason).Inc() },
		Retrying: func(stream string, _ error, _ time.Time, _ time.Duration) {
			failures.WithLabelValues(name, stream).Inc()
		},
		Lag: func(s persister.Status) {
			on := 1.0
			if s.Standby {
				on = 0
			}
			active.WithLabelValues(name, s.Stream).Set(on)
			held.WithLabelValues(name, s.Stream).Set(float64(s.HeldBytes))
			if s.LagAt.IsZero() {
				messages.DeleteLabelValues(name, s.Stream)
				seconds.DeleteLabelValues(name, s.Stream)
				return
			}
			age := 0.0
			if !s.Lag.Oldest.IsZero() {
				age = time.Since(s.Lag.Oldest).Seconds()
			}
			messages.WithLabelValues(name, s.Stream).Set(float64(s.Lag.Messages))
			seconds.WithLabelValues(name, s.Stream).Set(age)
		},
	}
}
