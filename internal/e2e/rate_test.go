package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
)

// rateBar is the least that the persister must reach of what a bare COPY, or bare inserts, reach.
const rateBar = 0.75

// The short form shows that the measuring works; below this many events nothing is judged.
const rateShort, rateJudged = 20_000, 1_000_000

// measure is one measurement of one round.
type measure struct {
	events int
	took   time.Duration
	cpu    map[string]float64 // seconds, by process
}

func (m measure) rate() float64 { return float64(m.events) / m.took.Seconds() }

func (m measure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7.0f rows/s", m.rate())
	for _, name := range []string{"persist", "nats", "postgres", "client", "dev"} {
		if cpu, ok := m.cpu[name]; ok {
			fmt.Fprintf(&b, ", %s %.1f µs/row", name, cpu*1e6/float64(m.events))
		}
	}
	return b.String()
}

// medianRate of several measurements; 0 for none.
func medianRate(list []measure) float64 {
	if len(list) == 0 {
		return 0
	}
	var rates []float64
	for _, m := range list {
		rates = append(rates, m.rate())
	}
	slices.Sort(rates)
	return (rates[(len(rates)-1)/2] + rates[len(rates)/2]) / 2
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// needDisk fails where the temporary folder has too little room.
func needDisk(t testing.TB, bytes int64) {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(os.TempDir(), &s); err != nil {
		t.Fatal(err)
	}
	if free := int64(s.Bavail) * s.Bsize; free < bytes {
		t.Fatalf("%s has %d MiB free, this needs about %d: say fewer AGENTSTREAM_EVENTS, or another TMPDIR",
			os.TempDir(), free>>20, bytes>>20)
	}
}

// pgRate is the rate proof on PostgreSQL: one log, and two databases of one server.
type pgRate struct {
	t          *testing.T
	nats       *natsProc
	postgres   *testkit.PostgresServer
	mine, bare string // DSNs
	pool       *pgxpool.Pool
	barePool   *pgxpool.Pool
	feed       *feed
	rowsPerTx  int
	stored     int // rows in mine
	maxRSS     float64
	began      time.Time
	drains     []measure
	copies     map[int][]measure // by connections
	prepared   bool              // bare has mine's partitions
}

// The persister drains a log of many runs into PostgreSQL, beside a bare binary COPY of the same rows
// into the same table of another database on the same server, in turn: transactions of as many rows,
// the same indexes and partitions.
func TestArchiveRate(t *testing.T) {
	beside(t)
	events := intEnv(t, "AGENTSTREAM_EVENTS", rateShort)
	rounds := intEnv(t, "AGENTSTREAM_ROUNDS", map[bool]int{true: 10, false: 2}[events >= rateJudged])
	needDisk(t, int64(events)*2000+6<<30/10)
	r := newPGRate(t)
	for round := range rounds {
		packs, n, size := r.feed.publish(events/rounds, 0)
		progress("round %d of %d: %d events of %.0f bytes in %d packs are in the log", round+1, rounds, n,
			float64(size)/float64(n), len(packs))
		parts := rowsOf(t, packs)
		connections := 1 + round/2%2
		if round%2 == 0 {
			r.drain(n)
			r.copyBare(parts, n, connections)
		} else {
			r.copyBare(parts, n, connections)
			r.drain(n)
		}
		purgeAll(t, r.nats.url())
	}
	r.verify()
	mine, one, two := medianRate(r.drains), medianRate(r.copies[1]), medianRate(r.copies[2])
	t.Logf("persister: median of %d rounds %.0f rows/s, transactions of %d rows, at most %.0f MiB resident",
		len(r.drains), mine, r.rowsPerTx, r.maxRSS)
	t.Logf("bare COPY, 1 connection: median of %d rounds %.0f rows/s: ratio %.2f", len(r.copies[1]), one, mine/one)
	if two > 0 {
		t.Logf("bare COPY, 2 connections: median of %d rounds %.0f rows/s: ratio %.2f", len(r.copies[2]), two, mine/two)
	}
	if events >= rateJudged && mine/one < rateBar {
		t.Errorf("the persister reaches %.2f of bare COPY, %.2f is the least", mine/one, rateBar)
	}
	r.live(max(events/10, 5_000), 0)
	r.live(max(events/10, 5_000), 0.7*mine)
}

func newPGRate(t *testing.T) *pgRate {
	r := &pgRate{t: t, began: time.Now(), rowsPerTx: 2000, copies: make(map[int][]measure)}
	r.nats = startNATS(t, t.TempDir())
	var settings []string
	if s := os.Getenv("AGENTSTREAM_PG_SETTINGS"); s != "" { // "fsync=on full_page_writes=on", for example
		settings = strings.Fields(s)
	}
	r.postgres = testkit.StartPostgres(t, settings...)
	r.mine, r.bare = r.postgres.Database(t), r.postgres.Database(t)
	r.feed = newFeed(t, r.nats.url())
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, dsn := range []string{r.mine, r.bare} {
		cmd := command(path, "migrate", "--nats", r.nats.url())
		cmd.Env = append(os.Environ(), "AGENTSTREAM_POSTGRES="+dsn)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("migrate: %v\n%s", err, out)
		}
	}
	open := func(dsn string) *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	r.pool, r.barePool = open(r.mine), open(r.bare)
	return r
}

// rows is how many rows are committed, by the runs' heads: a short read.
func (r *pgRate) rows() (n int) {
	if err := r.pool.QueryRow(r.t.Context(), "select coalesce(sum(last_seq), 0) from agent_runs").Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// cpu returns the CPU time of the servers and of this process.
func (r *pgRate) cpu(persist int) map[string]float64 {
	m := map[string]float64{"nats": cpuSeconds(r.nats.process(), false), "postgres": cpuSeconds(r.postgres.PID(), true)}
	if persist != 0 {
		m["persist"] = cpuSeconds(persist, false)
	} else {
		m["client"] = cpuSeconds(os.Getpid(), false)
	}
	return m
}

func since(now, then map[string]float64) map[string]float64 {
	for name := range now {
		now[name] -= then[name]
	}
	return now
}

// drain lets the real persister empty the log. Time runs from the first rows that are seen to the last.
func (r *pgRate) drain(n int) {
	r.t.Helper()
	r.checkpoint()
	p := newRole(r.t, "persist", r.nats.url(), r.mine)
	p.start()
	started := time.Now()
	var first time.Time
	var base map[string]float64
	from, told := 0, time.Now()
	var have int
	for limit := time.Now().Add(10*time.Minute + time.Duration(n)*time.Millisecond); have < r.stored+
		n; <-time.After(20 * time.Millisecond) {
		have = r.rows()
		if first.IsZero() && have > r.stored {
			first, from, base = time.Now(), have, r.cpu(p.process())
		}
		r.maxRSS = max(r.maxRSS, rssMiB(p.process()))
		if time.Since(told) > time.Second {
			told = time.Now()
			r.report(p, have)
		}
		if time.Now().After(limit) {
			r.t.Fatalf("%d rows of %d", have, r.stored+n)
		}
	}
	m := measure{events: have - from, took: time.Since(first), cpu: since(r.cpu(p.process()), base)}
	if m.events == 0 { // all in the first look
		m = measure{events: n, took: time.Since(started), cpu: m.cpu}
	}
	if _, text := getText("http://" + p.admin + "/metrics"); text != "" {
		rows, _, _ := scraped(text, "agentstream_persisted_rows_total")
		if commits, _, ok := scraped(text, "agentstream_persist_seconds_count"); ok && commits > 0 {
			r.rowsPerTx = int(rows/commits + 0.5)
		}
	}
	r.stored += n
	eventually(r.t, time.Minute, "all is stored", func() bool {
		left, err := pending(r.t.Context(), r.nats.url(), r.mine)
		return err == nil && left == 0
	})
	p.kill()
	r.drains = append(r.drains, m)
	r.t.Logf("persister: %s, %d rows a transaction, %.0f MiB", m, r.rowsPerTx, r.maxRSS)
}

// report prints the state of a persister at work.
func (r *pgRate) report(p *role, have int) {
	_, text := getText("http://" + p.admin + "/metrics")
	_, seconds, _ := scraped(text, "agentstream_persist_lag_seconds")
	events, _, ok := scraped(text, "agentstream_persist_lag_events")
	if !ok {
		messages, _, _ := scraped(text, "agentstream_persist_lag_messages")
		events = messages * ratePack
	}
	progress("%5.0fs  %9d rows, persist %.0f MiB, lag by its metrics about %.0f events, %.1f s",
		time.Since(r.began).Seconds(), have, rssMiB(p.process()), events, seconds)
}

func (r *pgRate) checkpoint() {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), "checkpoint"); err != nil {
		r.t.Fatal(err)
	}
}

// shape gives the bare database the partitions that the persister made in its own.
func (r *pgRate) shape() {
	r.t.Helper()
	if r.prepared {
		return
	}
	rows, err := r.pool.Query(r.t.Context(), `select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_class c join pg_inherits i on i.inhrelid = c.oid
		where i.inhparent = 'agent_run_events'::regclass`)
	if err != nil {
		r.t.Fatal(err)
	}
	var name, bound string
	if _, err := pgx.ForEachRow(rows, []any{&name, &bound}, func() error {
		_, err := r.barePool.Exec(r.t.Context(),
			fmt.Sprintf("create table if not exists %s partition of agent_run_events %s",
				pgx.Identifier{name}.Sanitize(), bound))
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	r.prepared = true
}

// copyBare copies the rows, taken apart beforehand, over so many connections.
func (r *pgRate) copyBare(parts [ratePartitions][]rateRow, n, connections int) {
	r.t.Helper()
	r.shape()
	r.checkpoint()
	batches := make(chan []rateRow, ratePartitions)
	var table string
	// Straight into the partition: finding it for each row is work that the persister need not do either.
	if err := r.barePool.QueryRow(r.t.Context(), `select c.relname from pg_class c join pg_inherits i on i.inhrelid = c.oid
		where i.inhparent = 'agent_run_events'::regclass and pg_get_expr(c.relpartbound, c.oid) like '%' || $1 || '%' order by 1 limit 1`,
		parts[0][0].day.Format("2006-01-02")).Scan(&table); err != nil {
		r.t.Fatal(err)
	}
	base, began := r.cpu(0), time.Now()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			for rows := range batches {
				if err := copyRows(r.t.Context(), r.barePool, table, rows); err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	for _, b := range batchesOf(parts, r.rowsPerTx) {
		batches <- b
	}
	close(batches)
	wg.Wait()
	m := measure{events: n, took: time.Since(began), cpu: since(r.cpu(0), base)}
	r.copies[connections] = append(r.copies[connections], m)
	r.t.Logf("COPY, %d:   %s", connections, m)
}

var rateColumns = []string{"koder_user_id", "run_day", "run_id", "seq", "id", "child_id", "type", "ts", "line",
	"payload"}

func copyRows(ctx context.Context, pool *pgxpool.Pool, table string, rows []rateRow) error {
	values := make([]any, len(rateColumns))
	_, err := pool.CopyFrom(ctx, pgx.Identifier{table}, rateColumns,
		pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
			w := &rows[i]
			values[0], values[1], values[2], values[3], values[4] = rateTenant, w.day, w.run, w.seq, w.id
			values[5], values[6], values[7], values[8], values[9] = nil, w.typ, w.ts, w.line, w.payload
			return values, nil
		}))
	return err
}

// verify counts what is in both databases, and compares the lines.
func (r *pgRate) verify() {
	r.t.Helper()
	const all = `select count(*), coalesce(sum(hashtextextended(line, 0)), 0)::text, coalesce(sum(length(payload::text)), 0) from agent_run_events`
	var n [2]int
	var sum [2]string
	var payload [2]int64
	for i, pool := range []*pgxpool.Pool{r.pool, r.barePool} {
		if err := pool.QueryRow(r.t.Context(), all).Scan(&n[i], &sum[i], &payload[i]); err != nil {
			r.t.Fatal(err)
		}
	}
	if n[0] != r.stored || n[0] != n[1] || sum[0] != sum[1] || payload[0] != payload[1] {
		r.t.Errorf("the persister stored %d rows (%s, %d), COPY %d (%s, %d), %d were published", n[0], sum[0],
			payload[0], n[1], sum[1], payload[1], r.stored)
	}
	var bytes int64
	if err := r.pool.QueryRow(r.t.Context(),
		`select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'agent_run_events'::regclass`).Scan(&bytes); err == nil {
		r.t.Logf("%d rows in each database, %.0f bytes a row with indexes", n[0], float64(bytes)/float64(n[0]))
	}
}

// live fills the log while the persister drains it, at a pace or, with 0, as fast as it goes.
func (r *pgRate) live(n int, pace float64) {
	r.t.Helper()
	purgeAll(r.t, r.nats.url())
	p := newRole(r.t, "persist", r.nats.url(), r.mine)
	p.start()
	p.await(r.t)
	// The leases of the one that was killed before have to end first.
	eventually(r.t, time.Minute, "the persister has all partitions", func() bool { return active(p) == ratePartitions })
	began := time.Now()
	published := make(chan time.Time, 1)
	go func() {
		r.feed.publish(n, pace)
		published <- time.Now()
	}()
	var most uint64
	var late, rss float64
	var end time.Time
	for told := time.Now(); ; <-time.After(200 * time.Millisecond) {
		left, oldest := r.backlog()
		most, rss = max(most, left), max(rss, rssMiB(p.process()))
		late = max(late, oldest.Seconds())
		if time.Since(told) > time.Second {
			told = time.Now()
			progress("%5.0fs  %d messages behind, the oldest %.1f s, persist %.0f MiB", time.Since(r.began).Seconds(),
				left, oldest.Seconds(), rssMiB(p.process()))
		}
		select {
		case end = <-published:
			continue // look once more: there may be more than before
		default:
		}
		if left == 0 && !end.IsZero() {
			break
		}
		if time.Since(began) > 30*time.Minute {
			r.t.Fatal("the persister does not catch up")
		}
	}
	took := time.Since(end)
	p.kill()
	name := "as fast as it goes"
	if pace > 0 {
		name = fmt.Sprintf("at %.0f events/s", pace)
	}
	r.t.Logf("filled while draining, %s: %.0f events/s published, at most about %d events and %.1f s behind, drained %s after the last, %.0f MiB",
		name, float64(n)/end.Sub(began).Seconds(), most*ratePack, late, took.Round(10*time.Millisecond), rss)
	if pace > 0 && n >= rateJudged/10 && late > 15 {
		r.t.Errorf("at a pace below its own the persister falls %.1f s behind", late)
	}
}

// backlog is how many messages are not persisted, and how long ago the oldest of them was published.
func (r *pgRate) backlog() (left uint64, oldest time.Duration) {
	at, err := offsets(r.t.Context(), r.mine)
	if err != nil {
		r.t.Fatal(err)
	}
	eachStream(r.t, r.nats.url(), func(s jetstream.Stream) {
		info := s.CachedInfo()
		stored := at[info.Config.Name]
		n := info.State.LastSeq - min(stored, info.State.LastSeq)
		if left += n; n == 0 {
			return
		}
		if m, err := s.GetMsg(r.t.Context(), stored+1); err == nil {
			oldest = max(oldest, time.Since(m.Time))
		}
	})
	return left, oldest
}
