package e2e_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
	"agentstream/schema"
)

// outageWorld is a deployment under a steady load: an edge, a persister, and what they need.
type outageWorld struct {
	t        *testing.T
	nats     *natsProc
	postgres *testkit.PostgresServer
	dsn      string
	edge     *role
	persist  *role
	load     *steadyLoad

	began   time.Time
	mu      sync.Mutex
	phase   string
	samples []outageSample
}

// outageSample is the state at one time.
type outageSample struct {
	at                     time.Time
	phase                  string
	pending                uint64 // messages, asked of the log; 0 when it does not answer
	lagEvents, lagSeconds  float64
	lagMessages, rows      float64
	persistMiB, edgeMiB    float64
	readyPersist, readyEdg int
}

// outageRate is how many events are published a second; in the short form, which runs beside others, outageRateShort.
const outageRate, outageRateShort = 5000, 1000

func newOutageWorld(t *testing.T) *outageWorld {
	w := &outageWorld{t: t, began: time.Now(), phase: "before"}
	w.postgres = testkit.StartPostgres(t)
	w.dsn = w.postgres.Database(t)
	w.nats = startNATS(t, t.TempDir())
	migrate(t, w.dsn, w.nats.url())
	w.edge = newRole(t, "edge", w.nats.url(), w.dsn)
	w.persist = newRole(t, "persist", w.nats.url(), w.dsn)
	for _, r := range []*role{w.edge, w.persist} {
		r.start()
		r.await(t)
	}
	rate := outageRateShort
	if os.Getenv("AGENTSTREAM_OUTAGE") != "" {
		rate = outageRate
	}
	w.load = startLoad(t, w.nats.url(), w.edge.addr, intEnv(t, "AGENTSTREAM_RATE", rate))
	return w
}

func (w *outageWorld) enter(phase string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = phase
	return time.Now()
}

// watchState samples every so often until the returned function is called.
func (w *outageWorld) watchState(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			s := w.sample(ctx)
			w.mu.Lock()
			s.phase = w.phase
			w.samples = append(w.samples, s)
			w.mu.Unlock()
			fmt.Fprintf(os.Stderr, "%5.0fs %s: %d messages pending, persist %.0f MiB\n", s.at.Sub(w.began).Seconds(),
				s.phase, s.pending, s.persistMiB)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (w *outageWorld) sample(ctx context.Context) outageSample {
	s := outageSample{at: time.Now(), persistMiB: rssMiB(w.persist.process()), edgeMiB: rssMiB(w.edge.process())}
	s.pending, _ = pending(ctx, w.nats.url(), w.dsn) // while it is away, nobody knows
	if status, text := getText("http://" + w.persist.admin + "/metrics"); status == http.StatusOK {
		s.lagMessages, _, _ = scraped(text, "agentstream_persist_lag_messages")
		s.lagEvents, _, _ = scraped(text, "agentstream_persist_lag_events")
		_, s.lagSeconds, _ = scraped(text, "agentstream_persist_lag_seconds")
		s.rows, _, _ = scraped(text, "agentstream_persisted_rows_total")
	}
	s.readyPersist, _ = getTextWithin(time.Second, "http://"+w.persist.admin+"/readyz") // 0: too late
	s.readyEdg, _ = getTextWithin(time.Second, "http://"+w.edge.admin+"/readyz")
	return s
}

// table is the samples, with what watchers saw of the events that were made in between.
func (w *outageWorld) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%6s  %-8s %9s %11s %9s %9s %10s %11s %8s %8s %9s %9s\n", "s", "phase", "pending", "lag packs",
		"lag evts", "lag s", "rows", "persist MiB", "edge MiB", "ready", "p50 ms", "p99 ms")
	step := max(1, len(w.samples)/40)
	for i := 0; i < len(w.samples); i += step {
		s, to := w.samples[i], time.Now()
		if i+step < len(w.samples) {
			to = w.samples[i+step].at
		}
		list := w.load.took(s.at, to)
		fmt.Fprintf(&b, "%6.0f  %-8s %9d %11.0f %9.0f %9.1f %10.0f %11.0f %8.0f %4d/%3d %9.1f %9.1f\n",
			s.at.Sub(w.began).Seconds(), s.phase, s.pending, s.lagMessages,
			s.lagEvents, s.lagSeconds, s.rows, s.persistMiB, s.edgeMiB, s.readyPersist, s.readyEdg,
			quantile(list, 0.5).Seconds()*1000, quantile(list, 0.99).Seconds()*1000)
	}
	return b.String()
}

// most returns the largest value of a phase.
func (w *outageWorld) most(of func(outageSample) float64, phases ...string) (most float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.samples {
		for _, p := range phases {
			if s.phase == p {
				most = max(most, of(s))
			}
		}
	}
	return most
}

func persistMiB(s outageSample) float64 { return s.persistMiB }

// PostgreSQL is away while producers publish and watchers watch. Watchers notice nothing, the persister
// holds no more than before and says what is wrong, and afterwards it catches up with what came
// meanwhile. AGENTSTREAM_OUTAGE is how long.
func TestPostgresAway(t *testing.T) {
	beside(t)
	away := durationEnv(t, "AGENTSTREAM_OUTAGE", 10*time.Second)
	w := newOutageWorld(t)
	w.outage(away, outageOf{
		stop: w.postgres.Stop, start: w.postgres.Start, check: "postgres",
		edgeStatus: http.StatusOK, edgeCheck: "archive", watchersNotice: false,
	})
}

// PostgreSQL is there and answers nothing: its processes are stopped in the middle of whatever they do.
// That is worse than to be away, because nobody is told.
func TestPostgresHangs(t *testing.T) {
	beside(t)
	away := min(time.Minute, durationEnv(t, "AGENTSTREAM_OUTAGE", 10*time.Second))
	w := newOutageWorld(t)
	w.outage(away, outageOf{
		stop: w.postgres.Pause, start: w.postgres.Resume, check: "postgres",
		edgeStatus: http.StatusOK, edgeCheck: "archive", watchersNotice: false,
	})
}

// The same with NATS away: nobody can publish, what was made meanwhile is held by the producers, and
// goes on where it was.
func TestNATSAway(t *testing.T) {
	beside(t)
	away := max(3*time.Second, durationEnv(t, "AGENTSTREAM_OUTAGE", 10*time.Second)/10)
	w := newOutageWorld(t)
	w.outage(away, outageOf{
		stop:  func() error { w.nats.kill(); return nil },
		start: func() error { w.nats.start(); w.nats.await(); return nil }, check: "nats",
		edgeStatus: http.StatusServiceUnavailable, edgeCheck: "nats", watchersNotice: true,
	})
}

// outageOf is what is away, and what is to be seen of it.
type outageOf struct {
	stop, start    func() error
	check          string // of persist's /readyz
	edgeStatus     int
	edgeCheck      string
	watchersNotice bool
}

func (w *outageWorld) outage(away time.Duration, o outageOf) {
	t := w.t
	calm := min(max(5*time.Second, away/20), 30*time.Second)
	stopWatching := w.watchState(max(time.Second, away/60))
	defer stopWatching()
	began := w.enter("before")
	<-time.After(calm)
	down := w.enter("away")
	if err := o.stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s was gone after %s", o.check, time.Since(down).Round(time.Millisecond))
	<-time.After(away / 2)
	w.checkReady(o)
	if !o.watchersNotice {
		w.joinLate()
	}
	<-time.After(away - time.Since(down))
	usual := w.most(func(s outageSample) float64 { return float64(s.pending) }, "before")
	if err := o.start(); err != nil {
		t.Fatal(err)
	}
	back := w.enter("catching")
	limit := max(60*time.Second, away)
	backlog, last := uint64(0), time.Time{}
	eventually(t, limit+60*time.Second, "the persister has caught up", func() bool {
		if time.Since(last) < 100*time.Millisecond {
			return false
		}
		last = time.Now()
		left, err := pending(t.Context(), w.nats.url(), w.dsn)
		backlog = max(backlog, left)
		return err == nil && float64(left) <= 1.2*usual+outageRuns
	})
	caught := w.enter("after")
	<-time.After(calm)
	ended := time.Now()
	total := w.load.finish()
	eventually(t, limit, "everything is persisted", func() bool {
		left, err := pending(t.Context(), w.nats.url(), w.dsn)
		return err == nil && left == 0
	})
	stopWatching()
	if long() && (caught.Sub(back) > limit || away >= time.Minute && caught.Sub(back) >= away) {
		t.Errorf("caught up in %s after an outage of %s", caught.Sub(back), away)
	}
	sameRuns(t, w.nats.url(), w.dsn, w.load.sent[:])
	first, then := w.most(persistMiB, "before"), w.most(persistMiB, "away", "catching")
	if then > 2*first+256 {
		t.Errorf("persist: %.0f MiB before, %.0f MiB in the outage and behind it", first, then)
	}
	if before, then := w.usualP99(began, down), w.usualP99(down, back); away >= time.Minute && !o.watchersNotice &&
		then > 10*before+100*time.Millisecond {
		t.Errorf("watchers notice: a p99 of %s is usual, before %s", then, before)
	}
	t.Log(w.table())
	t.Logf("before:   %s", spread(w.load.took(began, down)))
	t.Logf("away:     %s", spread(w.load.took(down, back)))
	t.Logf("catching: %s", spread(w.load.took(back, caught)))
	t.Logf("after:    %s", spread(w.load.took(caught, ended)))
	if cut := w.load.cut.Load(); cut > 0 && !o.watchersNotice {
		t.Errorf("%d streams were cut", cut)
	}
	t.Logf("%s away for %s: %d events acknowledged, as many rows, same bytes; largest backlog %d messages, caught up in %s; persist %.0f MiB before, %.0f MiB at most; %d streams resumed, %d late beats, %d retries of producers",
		o.check, back.Sub(down).Round(time.Millisecond), total, backlog, caught.Sub(back).Round(time.Millisecond),
		first, then, w.load.cut.Load(), w.load.behind.Load(), w.load.retry.Load())
}

// joinLate watches a run anew, from its beginning and from its middle, while the archive is not there:
// the stream still holds all of it.
func (w *outageWorld) joinLate() {
	w.t.Helper()
	for i, from := range []int64{0, w.load.see[1].last.Load() / 2} {
		have := w.load.see[i].last.Load()
		late := &seer{load: w.load, run: loadRun(i), client: http.DefaultClient, base: "http://" + w.edge.addr}
		late.last.Store(from)
		ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { late.once(ctx) })
		var first time.Duration
		for late.last.Load() < have && ctx.Err() == nil {
			<-time.After(time.Millisecond)
			if first == 0 && late.last.Load() > from {
				first = time.Since(began)
			}
		}
		took := time.Since(began)
		cancel()
		wg.Wait()
		w.t.Logf("a new watcher behind %d of %d while away: first event after %s, all after %s", from, have,
			first.Round(time.Millisecond), took.Round(time.Millisecond))
		if late.last.Load() < have || long() && took > 10*time.Second {
			w.t.Errorf("a new watcher behind %d has %d of %d after %s", from, late.last.Load(), have, took)
		}
	}
}

// usualP99 is the median of the p99 of ten parts of a time: what else the machine does now and then does
// not count, what lasts does.
func (w *outageWorld) usualP99(from, to time.Time) time.Duration {
	const parts = 10
	var list []time.Duration
	for i := range time.Duration(parts) {
		step := to.Sub(from) / parts
		list = append(list, quantile(w.load.took(from.Add(i*step), from.Add((i+1)*step)), 0.99))
	}
	slices.Sort(list)
	return list[parts/2]
}

// checkReady looks at what the roles say while something is away.
func (w *outageWorld) checkReady(o outageOf) {
	w.t.Helper()
	asked := time.Now()
	status, text := w.persist.ready()
	w.t.Logf("persist /readyz while away, after %s: %d %.600s", time.Since(asked).Round(time.Millisecond), status, text)
	if !strings.Contains(text, `"`+o.check+`":`) || strings.Contains(text, `"`+o.check+`":"ok"`) {
		w.t.Errorf("persist does not say what is wrong with %s: %d %s", o.check, status, text)
	}
	if status == http.StatusOK {
		w.t.Errorf("persist is ready without %s", o.check)
	}
	asked = time.Now()
	status, text = w.edge.ready()
	w.t.Logf("edge /readyz while away, after %s: %d %.600s", time.Since(asked).Round(time.Millisecond), status, text)
	if status != o.edgeStatus || strings.Contains(text, `"`+o.edgeCheck+`":"ok"`) {
		w.t.Errorf("edge: status %d without %s, want %d: %s", status, o.check, o.edgeStatus, text)
	}
}

// eachPack reads the log in order, with a consumer: for logs that are too long to be asked for message by
// message.
func eachPack(t testing.TB, url string, fn func(schema.Pack)) {
	t.Helper()
	eachStream(t, url, func(s jetstream.Stream) {
		last := s.CachedInfo().State.LastSeq
		if s.CachedInfo().State.Msgs == 0 {
			return
		}
		c, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		it, err := c.Messages(jetstream.PullMaxMessages(2000))
		if err != nil {
			t.Fatal(err)
		}
		defer it.Stop()
		for {
			m, err := it.Next()
			if err != nil {
				t.Fatal(err)
			}
			meta, err := m.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			if _, _, child := schema.ParseChildSubject(m.Subject()); !child {
				p, err := schema.ParsePack(m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream)
				if err != nil {
					t.Fatal(err)
				}
				fn(p)
			}
			if meta.Sequence.Stream >= last {
				return
			}
		}
	})
}

// sameRuns compares each run of the load in log and table by the digest of its lines, in order of seq.
func sameRuns(t *testing.T, url, dsn string, sent []int) {
	t.Helper()
	type sum struct {
		hash.Hash
		lines int
	}
	log := make(map[string]*sum)
	eachPack(t, url, func(p schema.Pack) {
		s := log[p.Key.Run]
		if s == nil {
			s = &sum{Hash: md5.New()}
			log[p.Key.Run] = s
		}
		s.lines += p.Count
		s.Write(p.Body)
	})
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `select run_id, count(*), min(seq), max(seq), md5(string_agg(line, E'\n' order by seq) || E'\n')
		from agent_run_events group by run_id`)
	if err != nil {
		t.Fatal(err)
	}
	var run, digest string
	var count, first, last, runs int
	if _, err := pgx.ForEachRow(rows, []any{&run, &count, &first, &last, &digest}, func() error {
		var i int
		if _, err := fmt.Sscanf(run, "load_%d", &i); err != nil {
			return err
		}
		s := log[run]
		if s == nil || count != sent[i] || s.lines != count || first != 1 || last != count ||
			hex.EncodeToString(s.Sum(nil)) != digest {
			t.Errorf("%s: %d rows, seq %d to %d, of %d that were sent; the log differs or holds others", run, count,
				first, last, sent[i])
		}
		runs++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var letters int
	if err := conn.QueryRow(t.Context(), "select count(*) from agent_dead_letters").Scan(&letters); err != nil ||
		letters != 0 || runs != len(sent) || len(log) != runs {
		t.Errorf("%d runs of %d, %d in the log, %d dead letters (%v)", runs, len(sent), len(log), letters, err)
	}
}
