package process

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/persister"
	"agentstream/schema"
)

// losses are acknowledged events that are nowhere any more, as this process has found out.
type losses struct {
	events prometheus.Counter

	mu   sync.Mutex
	text []string
	more int

	recorded []string // what the archive's tables say is lost
	streams  *prometheus.GaugeVec
	messages *prometheus.GaugeVec
	runs     prometheus.Gauge
}

// Record takes what the tables say is lost: of the log, of the newest runs, and the number of all ranges of runs.
func (l *losses) Record(log []persister.Loss, runs []persister.RunLoss, all int) {
	text := make([]string, 0, len(log)+len(runs))
	l.streams.Reset()
	l.messages.Reset()
	for i := range log {
		one := &log[i]
		l.streams.WithLabelValues(one.Stream, one.Reason).Add(oneIf(one.Open()))
		if n, known := one.Messages(); known && one.Open() {
			l.messages.WithLabelValues(one.Stream).Add(float64(n))
		}
		if one.Open() {
			text = append(text, one.String())
		}
	}
	for i := range runs {
		text = append(text, runs[i].String())
	}
	if all > len(runs) {
		text = append(text, fmt.Sprintf("and %d more ranges of events of runs", all-len(runs)))
	}
	l.runs.Set(float64(all))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recorded = text
}

// maxLosses is how many runs /readyz names.
const maxLosses = 20

// Add notes that the events with after < seq ≤ through are lost.
func (l *losses) Add(key schema.RunKey, after, through schema.Seq) {
	l.events.Add(float64(through - after))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.text) == maxLosses {
		l.more++
		return
	}
	l.text = append(l.text, fmt.Sprintf("run %s: acknowledged events %d to %d are lost", key, after+1, through))
}

// all returns what is lost, in words.
func (l *losses) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append(l.recorded[:len(l.recorded):len(l.recorded)], l.text...)
	if l.more > 0 {
		all = append(all, fmt.Sprintf("and of %d more runs", l.more))
	}
	return all
}

// lossHook returns a hook that logs and counts what a writer knows to have been acknowledged and the log has
// lost.
func (m *Metrics) lossHook(log *slog.Logger) func(key schema.RunKey, after, through schema.Seq) {
	return func(key schema.RunKey, after, through schema.Seq) {
		log.Error("acknowledged events are neither in the log nor in the archive: they are lost",
			"run", key.String(), "after", after, "through", through)
		m.Losses.Add(key, after, through)
	}
}

// RefillCounter counts what is written back into the log.
func (m *Metrics) RefillCounter() prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_refilled_events_total",
		Help: "Events that the log had lost and that were written back from the archive."})
	m.Registry.MustRegister(c)
	return c
}
