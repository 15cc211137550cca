package process

import (
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/persister"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// Metrics turns the components' hooks into Prometheus instruments. Names carry their unit.
type Metrics struct {
	Registry *prometheus.Registry

	streams    *prometheus.GaugeVec
	ends       *prometheus.CounterVec
	sentEvents *prometheus.CounterVec
	sentBytes  *prometheus.CounterVec
	spared     *prometheus.CounterVec
	requests   *prometheus.HistogramVec
	lives      *prometheus.HistogramVec
	underWay   prometheus.Gauge
	deliveries *prometheus.HistogramVec
	tenants    *tenantMetrics
	audited    prometheus.Counter
	unaudited  prometheus.Counter
	ingested   prometheus.Counter
	refused    *prometheus.CounterVec
	turnedAway *prometheus.CounterVec
	badFeed    *prometheus.CounterVec

	bodies      prometheus.Gauge
	notAccepted prometheus.Counter
	notLetIn    prometheus.Counter
	handshakes  *prometheus.CounterVec
	Paced       prometheus.Counter

	stored    prometheus.Counter
	storeTook prometheus.Histogram
	conflicts prometheus.Counter
	retries   prometheus.Counter
	fenced    prometheus.Counter
	notStored prometheus.Counter
	redacted  *prometheus.CounterVec

	watched  prometheus.Gauge
	gaps     prometheus.Counter
	replayed prometheus.Counter
	pages    *prometheus.CounterVec
	cached   prometheus.Gauge
	audits   *prometheus.CounterVec

	rows        *prometheus.CounterVec
	dead        *prometheus.CounterVec
	rowConflict prometheus.Counter
	persistTook prometheus.Histogram
	persistFail *prometheus.CounterVec
	lagMessages *prometheus.GaugeVec
	lagSeconds  *prometheus.GaugeVec
	lagEvents   *prometheus.GaugeVec
	windowLeft  *prometheus.GaugeVec
	sizeLeft    *prometheus.GaugeVec
	active      *prometheus.GaugeVec
	batchRows   *prometheus.GaugeVec
	heldBytes   *prometheus.GaugeVec
	lost        *prometheus.CounterVec

	ended         atomic.Int64 // streams, for the memory keeper
	returns       prometheus.Counter
	returnedBytes prometheus.Counter

	Losses losses

	streamHealth streamMetrics
	certificates *certificates
	checks       *checkStates
}

// NewMetrics returns instruments, all zero, on a registry of their own.
func NewMetrics() *Metrics {
	r := instruments{prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &Metrics{Registry: r.Registry}
	m.clients(r)
	m.log(r)
	m.storage(r)
	m.streamHealth = newStreamMetrics(r)
	m.certificates = newCertificates(r)
	m.checks = newCheckStates(r)
	addBuild(r)
	m.returns = r.counter("memory_returns_total",
		"Times that an idle process collected its garbage and gave memory back to the system.")
	m.returnedBytes = r.counter("memory_returned_bytes_total", "Bytes that it gave back.")
	return m
}

// clients makes the instruments of what clients ask for and get.
func (m *Metrics) clients(r instruments) {
	m.streams = r.gauges("streams_open", "Open streams.", "dialect", "transport")
	m.ends = r.counters("streams_ended_total", "Streams that have ended, by reason.", "dialect", "transport", "reason")
	m.sentEvents = r.counters("sent_events_total", "Events written to clients.", "dialect")
	m.sentBytes = r.counters("sent_bytes_total", "Bytes written to clients.", "dialect")
	m.spared = r.counters("dropped_deltas_total", "Deltas that slow clients were not told; they are in the log.",
		"dialect")
	m.requests = r.histograms("request_seconds", "Time of requests that opened no stream.",
		prometheus.ExponentialBuckets(0.0005, 2, 17), "route", "status")
	m.lives = r.histograms("stream_seconds", "Life of streams.",
		prometheus.ExponentialBuckets(0.25, 4, 10), "route", "status")
	m.underWay = r.gauge("requests_in_flight", "Requests under way, streams included.")
	m.deliveries = r.nativeHistograms("delivery_seconds",
		"From the time of the oldest of live events to their write to clients: "+
			"one observation for all clients that get the same bytes. Events with a time of ten minutes ago or of the future are left out.",
		prometheus.ExponentialBuckets(0.001, 2, 16), "dialect")
	m.tenants = newTenantMetrics(r)
	m.audited = r.counter("audit_lines_total", "Lines that audit feeds have got.")
	m.unaudited = r.counter("audit_failed_lines_total",
		"Lines that the log has not taken, each time that it was tried. They are kept, and tried again.")
	m.ingested = r.counter("ingested_events_total", "Events taken over HTTP or NATS and durable.")
	m.refused = r.counters("ingest_refused_total",
		"Requests and messages that were to write events and were refused, by reason.", "reason")
	m.turnedAway = r.counters("nats_ingest_refused_total", "Messages published over NATS that were refused, by code.",
		"code")
	m.badFeed = r.counters("feed_events_bad_total",
		"Events taken for a feed that are no message of it, and that no client is shown.", "feed")
	m.bodies = r.gauge("body_bytes", "Memory that the bodies of requests take: as they arrive, inflated and decoded.")
	m.notAccepted = r.counter("accept_errors_total", "Connections that could not be accepted.")
	m.notLetIn = r.counter("connections_refused_total",
		"Connections that were refused to keep descriptors for the rest of the process.")
	m.handshakes = r.counters("tls_handshakes_failed_total",
		"Handshakes of TLS that failed, by reason: timeout, closed (the client left), plain (it does not speak TLS), "+
			"certificate (it has none that is accepted), rejected (it does not trust ours), protocol.", "listener", "reason")
}

// log makes those of writing the log and reading it.
func (m *Metrics) log(r instruments) {
	m.Paced = r.counter("paced_seconds_total",
		"Time that appends have waited because the log in this process would take too much memory.")
	m.stored = r.counter("stored_events_total", "Events that the log has acknowledged to this process.")
	m.storeTook = r.seconds("store_seconds", "Time from sending a pack to its acknowledgement, retries included.")
	m.conflicts = r.counter("store_conflicts_total", "Packs that another writer was ahead of.")
	m.retries = r.counter("store_retries_total", "Attempts that the log did not answer or refused for now.")
	m.fenced = r.counter("store_fenced_total", "Writers that were refused because another has taken over.")
	m.redacted = r.counters("redacted_total", "What --redact has hidden in events that were stored, by rule.", "rule")
	m.notStored = r.counter("store_lost_events_total",
		"Events that a writer in this process had taken and that are not stored.")
	m.watched = r.gauge("watched_runs", "Runs with at least one reader on this node.")
	m.gaps = r.counter("gaps_total", "Lost live copies that were found and filled from history.")
	m.replayed = r.counter("replayed_events_total", "Events read from history for readers.")
	m.pages = r.counters("history_pages_total",
		"Pages of history that were asked for: hit, it was kept; miss, the log was read.", "outcome")
	m.cached = r.gauge("history_cache_bytes", "Pages of history that are kept.")
	m.audits = r.counters("audits_total", "Comparisons of watched runs with the stream.", "outcome")
}

// storage makes those of the persister.
func (m *Metrics) storage(r instruments) {
	m.rows = r.counters("persisted_rows_total", "Rows committed.", "stream", "kind")
	m.dead = r.counters("dead_letters_total", "Messages and events set aside.", "stream", "reason")
	m.rowConflict = r.counter("persist_conflicts_total", "Rows that came again with another content: an alarm.")
	m.persistTook = r.seconds("persist_seconds", "Time of one transaction.")
	m.persistFail = r.counters("persist_retries_total", "Attempts to persist that failed.", "stream")
	m.lagMessages = r.gauges("persist_lag_messages", "Packs that are in the log and not yet persisted.", "stream")
	m.lagSeconds = r.gauges("persist_lag_seconds", "Age of the oldest pack that is not yet persisted.", "stream")
	m.lagEvents = r.gauges("persist_lag_events",
		"Events in those packs: an estimate from how many events a pack had of late.", "stream")
	m.windowLeft = r.gauges("persist_window_left_seconds",
		"Time until the log drops the oldest pack that is not yet persisted; the whole window when there is none.", "stream")
	m.sizeLeft = r.gauges("persist_size_left_ratio",
		"Part of the stream's size that may be written before it drops a pack that is not yet persisted; only where the size is bounded.", "stream")
	m.active = r.gauges("persist_active", "1 while this process stores the partition, 0 while another does.", "stream")
	m.batchRows = r.gauges("persist_batch_rows", "Rows that a transaction may have now.", "stream")
	m.heldBytes = r.gauges("persist_held_bytes", "Bytes, about, that are fetched and not yet stored.", "stream")
	m.lost = r.counters("persist_lost_messages_total",
		"Packs that the log dropped before they were persisted: an alarm.", "stream")
	m.Losses.streams = r.gauges("recorded_losses",
		"Losses of the log that the archive's tables record for ever: an alarm.", "stream", "reason")
	m.Losses.messages = r.gauges("recorded_lost_messages", "Packs in them, where their number is known.", "stream")
	m.Losses.runs = r.gauge("recorded_run_losses",
		"Ranges of events of runs that the tables record as lost for ever: an alarm.")
	m.Losses.events = r.counter("lost_events_total",
		"Acknowledged events that are neither in the log nor in the archive: an alarm.")
}

// instruments makes instruments and registers them. Their names begin with the product's.
type instruments struct{ *prometheus.Registry }

// register registers an instrument and returns it.
func register[C prometheus.Collector](r instruments, c C) C {
	r.MustRegister(c)
	return c
}

func (r instruments) counter(name, help string) prometheus.Counter {
	return register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_" + name, Help: help}))
}

func (r instruments) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentstream_" + name, Help: help}, labels))
}

func (r instruments) gauge(name, help string) prometheus.Gauge {
	return register(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: "agentstream_" + name, Help: help}))
}

func (r instruments) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "agentstream_" + name, Help: help}, labels))
}

func (r instruments) seconds(name, help string) prometheus.Histogram {
	return register(r, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "agentstream_" + name, Help: help,
		Buckets: prometheus.ExponentialBuckets(0.0002, 2.5, 14)}))
}

func (r instruments) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agentstream_" + name, Help: help,
		Buckets: buckets}, labels))
}

// nativeHistograms are histograms that a scraper which asks for Protobuf gets as native ones too, with a resolution of a
// tenth and at most 160 buckets; others get the classic buckets alone.
func (r instruments) nativeHistograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agentstream_" + name, Help: help,
		Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		NativeHistogramMinResetDuration: time.Hour}, labels))
}

// EdgeHooks returns what counts streams and requests.
func (m *Metrics) EdgeHooks() edge.Hooks {
	return edge.Hooks{
		StreamOpened: func(d string, t dialect.Transport) { m.streams.WithLabelValues(d, string(t)).Inc() },
		StreamClosed: func(d string, t dialect.Transport, r dialect.Reason) {
			m.streams.WithLabelValues(d, string(t)).Dec()
			m.ends.WithLabelValues(d, string(t), r.String()).Inc()
			m.ended.Add(1)
		},
		EventsSent: func(d string, events int, bytes int64) {
			m.sentEvents.WithLabelValues(d).Add(float64(events))
			m.sentBytes.WithLabelValues(d).Add(float64(bytes))
		},
		Dropped:  func(d string, n int) { m.spared.WithLabelValues(d).Add(float64(n)) },
		Ingested: func(n int) { m.ingested.Add(float64(n)) },
		IngestRefused: func(r dialect.Reason) {
			m.refused.WithLabelValues(r.String()).Inc()
		},
		BodyBytes:     func(held int64) { m.bodies.Set(float64(held)) },
		RequestOpened: m.underWay.Inc,
		RequestDone:   m.countRequest,
		Delivered: func(d string, after time.Duration) {
			m.deliveries.WithLabelValues(d).Observe(after.Seconds())
		},
	}
}

// AuditWritten counts lines of audit feeds that the log has.
func (m *Metrics) AuditWritten(lines int) { m.audited.Add(float64(lines)) }

// AuditFailed counts those that it has not taken.
func (m *Metrics) AuditFailed(lines int) { m.unaudited.Add(float64(lines)) }

func (m *Metrics) countRequest(r edge.RequestEnd) {
	m.underWay.Dec()
	took := m.requests
	if r.Stream {
		took = m.lives
	}
	took.WithLabelValues(r.Route, strconv.Itoa(r.Status)).Observe(r.Took.Seconds())
	m.tenants.count(r)
}

// BadFeed counts an event of a feed that no client is shown.
func (m *Metrics) BadFeed(feed string) { m.badFeed.WithLabelValues(feed).Inc() }

// InboxHooks returns what counts refusals over NATS.
func (m *Metrics) InboxHooks() pubjs.InboxHooks {
	return pubjs.InboxHooks{Refused: func(code string) { m.turnedAway.WithLabelValues(code).Inc() }}
}

// ProducerHooks returns what counts events on their way into the log.
func (m *Metrics) ProducerHooks(log *slog.Logger) producers.Hooks {
	return producers.Hooks{
		Stored: func(events, _ int, took time.Duration) {
			m.stored.Add(float64(events))
			m.storeTook.Observe(took.Seconds())
		},
		Conflict: m.conflicts.Inc,
		Retry:    func(error) { m.retries.Inc() },
		Fenced:   func(schema.RunKey) { m.fenced.Inc() },
		Lost:     m.lossHook(log),
		Refused:  func(events int, _ error) { m.notStored.Add(float64(events)) },
	}
}

// FanoutHooks returns what counts reads of the log.
func (m *Metrics) FanoutHooks() fanout.Hooks {
	return fanout.Hooks{
		Watching: func(n int) { m.watched.Set(float64(n)) },
		Gap:      func(schema.RunKey) { m.gaps.Inc() },
		Replayed: func(n int) { m.replayed.Add(float64(n)) },
		Page: func(hit bool, held int) {
			outcome := "miss"
			if hit {
				outcome = "hit"
			}
			m.pages.WithLabelValues(outcome).Inc()
			m.cached.Set(float64(held))
		},
		Audited: func(_ int, err error) {
			outcome := "ok"
			if err != nil {
				outcome = "failed"
			}
			m.audits.WithLabelValues(outcome).Inc()
		},
	}
}

func (m *Metrics) memoryHooks() memoryHooks {
	return memoryHooks{Returned: func(bytes int64) {
		m.returns.Inc()
		m.returnedBytes.Add(float64(bytes))
	}}
}

// PersisterHooks returns what counts stored rows and measures the lag.
func (m *Metrics) PersisterHooks() persister.Hooks {
	return persister.Hooks{
		Stored: func(stream string, s persister.Stored) {
			m.rows.WithLabelValues(stream, "new").Add(float64(s.Inserted))
			m.rows.WithLabelValues(stream, "repeated").Add(float64(s.Repeated))
			m.rows.WithLabelValues(stream, "dropped").Add(float64(s.Dropped))
			m.persistTook.Observe(s.Took.Seconds())
		},
		DeadLetter: func(stream, reason string) { m.dead.WithLabelValues(stream, reason).Inc() },
		Conflict:   func(string, schema.RunKey, schema.Seq) { m.rowConflict.Inc() },
		Retrying: func(stream string, _ error, _ time.Time, _ time.Duration) {
			m.persistFail.WithLabelValues(stream).Inc()
		},
		Lag:  m.lag,
		Lost: func(stream string, n uint64) { m.lost.WithLabelValues(stream).Add(float64(n)) },
	}
}

// lag shows how far one partition is behind. What is not known is absent.
func (m *Metrics) lag(s persister.Status) {
	set := func(g *prometheus.GaugeVec, v float64) { g.WithLabelValues(s.Stream).Set(v) }
	if s.LagAt.IsZero() {
		for _, g := range []*prometheus.GaugeVec{m.lagMessages, m.lagEvents, m.lagSeconds, m.windowLeft, m.sizeLeft} {
			g.DeleteLabelValues(s.Stream)
		}
	} else {
		m.setLag(s, set)
	}
	active := 1.0
	if s.Standby {
		active = 0
	}
	set(m.active, active)
	set(m.batchRows, float64(s.BatchRows))
	set(m.heldBytes, float64(s.HeldBytes))
	m.lost.WithLabelValues(s.Stream) // 0 is an answer as well
}

// setLag sets the instruments of how far the archive lags.
func (m *Metrics) setLag(s persister.Status, set func(*prometheus.GaugeVec, float64)) {
	set(m.lagMessages, float64(s.Lag.Messages))
	set(m.lagEvents, float64(s.LagEvents))
	age := 0.0
	if !s.Lag.Oldest.IsZero() {
		age = time.Since(s.Lag.Oldest).Seconds()
	}
	set(m.lagSeconds, age)
	if s.Lag.Window > 0 {
		set(m.windowLeft, s.Lag.WindowLeft(time.Now()).Seconds())
	}
	if s.Lag.Bounded {
		set(m.sizeLeft, s.Lag.Room)
	}
}
