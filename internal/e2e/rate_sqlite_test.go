package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/persister/sqlite" // also the driver of database/sql
)

// sqliteRate is the rate proof on SQLite: dev on a log that is full already, beside bare inserts.
type sqliteRate struct {
	t         *testing.T
	bare      *sql.DB
	drains    []measure
	inserts   map[int][]measure // by rows of a statement
	rowsPerTx int
	maxRSS    float64
	data      string // of dev: log and archive
	feed      *feed
	stored    int
}

// dev drains its log into SQLite, beside bare inserts of the same rows into the same tables of another
// file: one connection, the same settings, transactions of as many rows. One statement a row, and in
// every other round as many rows to a statement as are usual.
func TestArchiveRateSQLite(t *testing.T) {
	beside(t)
	events := intEnv(t, "AGENTSTREAM_EVENTS", 10*rateShort) / 10
	rounds := intEnv(t, "AGENTSTREAM_ROUNDS", map[bool]int{true: 10, false: 2}[events >= rateJudged/10])
	needDisk(t, int64(events)*1500+1<<29)
	r := &sqliteRate{t: t, rowsPerTx: 2000, inserts: make(map[int][]measure), data: t.TempDir()}
	r.open(filepath.Join(t.TempDir(), "bare.db"))
	for round := range rounds {
		parts, n := r.fill(events / rounds)
		perStatement := 1
		if round/2%2 == 1 {
			perStatement = 100
		}
		if round%2 == 0 {
			r.drain(n)
			r.insertBare(parts, n, perStatement)
		} else {
			r.insertBare(parts, n, perStatement)
			r.drain(n)
		}
	}
	r.verify()
	mine, one, many := medianRate(r.drains), medianRate(r.inserts[1]), medianRate(r.inserts[100])
	t.Logf("dev: median of %d rounds %.0f rows/s, transactions of %d rows, at most %.0f MiB resident", len(r.drains),
		mine, r.rowsPerTx, r.maxRSS)
	t.Logf("bare inserts, a row to a statement: median of %d rounds %.0f rows/s: ratio %.2f", len(r.inserts[1]), one,
		mine/one)
	if many > 0 {
		t.Logf("bare inserts, 100 rows to a statement: median of %d rounds %.0f rows/s: ratio %.2f",
			len(r.inserts[100]), many, mine/many)
	}
	if events >= rateJudged/10 && mine/one < rateBar {
		t.Errorf("the persister reaches %.2f of bare inserts, %.2f is the least", mine/one, rateBar)
	}
}

// open makes the bare file: the tables of the product, opened as the product opens its own.
func (r *sqliteRate) open(path string) {
	r.t.Helper()
	if _, err := sqlite.Migrate(r.t.Context(), path, false); err != nil {
		r.t.Fatal(err)
	}
	q := url.Values{"_txlock": {"immediate"},
		"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "cache_size(-16000)", "wal_autocheckpoint(4000)",
			"temp_store(memory)"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+q.Encode())
	if err != nil {
		r.t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	r.t.Cleanup(func() { _ = db.Close() })
	r.bare = db
}

// fill puts events into dev's log while dev is not there: a server of its own runs on the store.
func (r *sqliteRate) fill(n int) (parts [ratePartitions][]rateRow, events int) {
	r.t.Helper()
	server := startNATS(r.t, filepath.Join(r.data, "nats"))
	if r.feed == nil {
		r.feed = newFeed(r.t, server.url())
	} else {
		next := newFeed(r.t, server.url())
		next.writers, next.at = r.feed.writers, r.feed.at // the runs go on
		r.feed = next
		purgeAll(r.t, server.url())
	}
	packs, events, size := r.feed.publish(n, 0)
	server.kill()
	server.quit()
	progress("%d events of %.0f bytes are in dev's log", events, float64(size)/float64(events))
	return rowsOf(r.t, packs), events
}

// drain starts dev and waits until its persister has emptied the log. What is measured is the whole
// process: server, persister and database.
func (r *sqliteRate) drain(n int) {
	r.t.Helper()
	p := newProc(r.t, "dev", "--no-demo", "--data", r.data)
	path, err := binary()
	if err != nil {
		r.t.Fatal(err)
	}
	p.cmd = command(path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	p.done = make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	pid, started, told := p.cmd.Process.Pid, time.Now(), time.Now()
	var first time.Time
	var base, rows, from, commits float64
	for limit := time.Now().Add(5*time.Minute +
		time.Duration(n)*time.Millisecond); int(rows) < n; <-time.After(20 * time.Millisecond) {
		status, text := getText("http://" + p.admin + "/metrics")
		if status == http.StatusOK {
			rows, _, _ = scraped(text, "agentstream_persisted_rows_total")
			commits, _, _ = scraped(text, "agentstream_persist_seconds_count")
		}
		if first.IsZero() && rows > 0 {
			first, from, base = time.Now(), rows, cpuSeconds(pid, false)
		}
		r.maxRSS = max(r.maxRSS, rssMiB(pid))
		if time.Since(told) > time.Second {
			told = time.Now()
			progress("dev: %.0f of %d rows, %.0f MiB", rows, n, rssMiB(pid))
		}
		if time.Now().After(limit) {
			r.t.Fatalf("%.0f rows of %d", rows, n)
		}
	}
	m := measure{events: int(rows - from), took: time.Since(first),
		cpu: map[string]float64{"dev": cpuSeconds(pid, false) - base}}
	if m.events == 0 {
		m = measure{events: n, took: time.Since(started), cpu: m.cpu}
	}
	r.rowsPerTx = max(1, int(rows/max(1, commits)+0.5))
	r.stored += n
	if code := p.stop(); code != 0 {
		r.t.Errorf("dev ends with %d", code)
	}
	r.drains = append(r.drains, m)
	r.t.Logf("dev:       %s, %d rows a transaction, %.0f MiB", m, r.rowsPerTx, r.maxRSS)
}

func (r *sqliteRate) insertBare(parts [ratePartitions][]rateRow, n, perStatement int) {
	r.t.Helper()
	statement := func(rows int) string {
		return `insert into agent_run_events (koder_user_id, run_id, seq, run_day, id, child_id, type, ts, line) values ` +
			strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?,?,?,?),", rows), ",")
	}
	began := time.Now()
	for _, batch := range batchesOf(parts, r.rowsPerTx) {
		tx, err := r.bare.Begin()
		if err != nil {
			r.t.Fatal(err)
		}
		whole, err := tx.Prepare(statement(perStatement))
		if err != nil {
			r.t.Fatal(err)
		}
		for len(batch) > 0 {
			rows := batch[:min(perStatement, len(batch))]
			batch = batch[len(rows):]
			args := make([]any, 0, 9*len(rows))
			for i := range rows {
				w := &rows[i]
				args = append(args, rateTenant, w.run, w.seq, w.day.Format("20060102"), w.id, nil, w.typ,
					w.ts.Format(time.RFC3339Nano), w.line)
			}
			if len(rows) == perStatement {
				_, err = whole.Exec(args...)
			} else {
				_, err = tx.Exec(statement(len(rows)), args...)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			r.t.Fatal(err)
		}
	}
	m := measure{events: n, took: time.Since(began)}
	r.inserts[perStatement] = append(r.inserts[perStatement], m)
	r.t.Logf("bare, %3d: %s", perStatement, m)
}

// verify compares what both files hold.
func (r *sqliteRate) verify() {
	r.t.Helper()
	mine, err := sql.Open("sqlite", "file:"+filepath.Join(r.data, "archive.db")+"?_pragma=query_only(1)")
	if err != nil {
		r.t.Fatal(err)
	}
	defer mine.Close()
	var got [2]string
	for i, db := range []*sql.DB{mine, r.bare} {
		var n, size, seqs int
		if err := db.QueryRow(`select count(*), sum(length(line)), sum(seq * length(id)) from agent_run_events`).Scan(&n, &size, &seqs); err != nil {
			r.t.Fatal(err)
		}
		got[i] = fmt.Sprintf("%d rows, %d bytes, %d", n, size, seqs)
		if n != r.stored {
			r.t.Errorf("%d rows, %d were published", n, r.stored)
		}
	}
	if got[0] != got[1] {
		r.t.Errorf("dev stored %s, bare inserts %s", got[0], got[1])
	}
}
