package persistertest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(rateChild); dir != "" { // the log of BenchmarkRate
		if err := serveRateLog(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// What servers that were stopped in the test's process leave behind is theirs.
	testkit.Main(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"))
}

// open returns a store on a migrated database.
func open(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	if _, err := tables.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// producer publishes packs of several runs until it is stopped, and remembers what the log has
// acknowledged.
type producer struct {
	t    *testing.T
	log  *testkit.Server
	mu   sync.Mutex
	sent map[schema.RunKey][]byte
}

func newProducer(t *testing.T, log *testkit.Server) *producer {
	return &producer{t: t, log: log, sent: make(map[schema.RunKey][]byte)}
}

// run publishes packs of one run, a hundred a second: the test is about outages, not about a
// backlog that a slow machine cannot drain.
func (p *producer) run(ctx context.Context, name string, packs int) {
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: name}, "20260228")
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for range packs {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		pack := w.Texts("", 1+rand.IntN(20))
		_, err := p.log.JS.PublishMsg(context.WithoutCancel(ctx), &nats.Msg{
			Subject: schema.Subject(pack.Key, "", p.log.Partitions), Header: pack.Headers(), Data: pack.Body,
		})
		if err != nil {
			p.t.Error(err)
			return
		}
		p.mu.Lock()
		p.sent[pack.Key] = append(p.sent[pack.Key], pack.Body...)
		p.mu.Unlock()
	}
}

// check waits until the store holds exactly what was acknowledged.
func (p *producer) check(store *postgres.Store, dsn string) {
	p.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	rows := 0
	for key, want := range p.sent {
		rows += bytes.Count(want, []byte("\n"))
		for {
			got, err := replay(p.t.Context(), store, key)
			if err == nil && bytes.Equal(got, want) {
				break
			}
			if time.Now().After(deadline) {
				p.t.Fatalf("%s: %d bytes of %d are stored, %v", key, len(got), len(want), err)
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	var stored int
	if err := queryRow(p.t, dsn, `select count(*) from agent_run_events`, &stored); err != nil || stored != rows {
		p.t.Fatalf("%d rows, want %d (%v)", stored, rows, err)
	}
	if deadLetters, err := store.DeadLetters(p.t.Context(), 10); err != nil || len(deadLetters) > 0 {
		p.t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
}

func replay(ctx context.Context, store *postgres.Store, key schema.RunKey) (body []byte, err error) {
	for p, err := range store.Packs(ctx, key, 0, schema.MaxSeq) {
		if err != nil {
			return body, err
		}
		body = append(body, p.Body...)
	}
	return body, nil
}

func queryRow(t *testing.T, dsn, query string, into ...any) error {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pool.QueryRow(t.Context(), query).Scan(into...)
}

// persist runs a persister from the log into the store until the returned function is called.
func persist(t *testing.T, log *testkit.Server, store persister.Store, hooks persister.Hooks) (p *persister.Persister,
	stop func()) {
	t.Helper()
	queues, err := natsjs.Queues(t.Context(), log.JS, natsjs.Config{Wait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p, err = persister.New(persister.Config{
		Queues: queues, Store: store, Hooks: hooks, Alone: true,
		BatchEvents: 200, RetryMax: 100 * time.Millisecond, Attempt: 5 * time.Second, LagEvery: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return p, stop
}

// TestDatabaseCrashes: PostgreSQL is stopped at once, five times, while events flow. After each
// start the backlog drains, and at the end rows equal the stream (faults 10, 12).
func TestDatabaseCrashes(t *testing.T) {
	log, server := testkit.NATS(t), testkit.StartPostgres(t)
	dsn := server.Database(t)
	store := open(t, dsn)
	var retries, recovered atomic.Int64
	p, stop := persist(t, log, store, persister.Hooks{
		Retrying:  func(string, error, time.Time, time.Duration) { retries.Add(1) },
		Recovered: func(string, time.Duration) { recovered.Add(1) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producer := newProducer(t, log)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		wg.Go(func() { producer.run(ctx, name, 1<<30) })
	}
	for range 5 {
		before, seen := commits(p), retries.Load()
		until(t, func() bool { return commits(p) > before })
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		// The retries that are counted may be of the outage before; the state is of this one.
		until(t, func() bool {
			s := status(p, func(s persister.Status) bool { return !s.RetryingSince.IsZero() })
			return retries.Load() > seen && s != nil && s.LastError != ""
		})
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	before := commits(p)
	until(t, func() bool { return commits(p) > before })
	cancel()
	wg.Wait()
	producer.check(store, dsn)
	until(t, func() bool { return status(p, func(s persister.Status) bool { return s.Lag.Messages > 0 }) == nil })
	if recovered.Load() == 0 {
		t.Error("the fault never fired: no pipeline has recovered from anything")
	}
	stop()
}

func commits(p *persister.Persister) (n uint64) {
	for _, s := range p.Status() {
		n += s.Inserted
	}
	return n
}

func status(p *persister.Persister, is func(persister.Status) bool) *persister.Status {
	for _, s := range p.Status() {
		if is(s) {
			return &s
		}
	}
	return nil
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("waited for 60 s")
		}
		<-time.After(2 * time.Millisecond)
	}
}

// TestPersisterDies: the persister is cut off in the middle, again and again; the next one goes on from what is
// committed.
func TestPersisterDies(t *testing.T) {
	log := testkit.NATS(t)
	dsn := testkit.Postgres(t)
	store := open(t, dsn)
	producer := newProducer(t, log)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() { producer.run(ctx, name, 1<<30) })
	}
	for range 6 {
		dying := &mortal{Store: store, lives: 2 + rand.Int64N(4)}
		p, stop := persist(t, log, dying, persister.Hooks{})
		until(t, func() bool { return dying.dead.Load() })
		_ = p
		stop()
	}
	cancel()
	wg.Wait()
	_, stop := persist(t, log, store, persister.Hooks{})
	producer.check(store, dsn)
	stop()
}

// mortal is a store whose persister stops hearing from it after some commits: the commit happens,
// the answer does not come.
type mortal struct {
	persister.Store
	lives int64
	dead  atomic.Bool
}

func (m *mortal) Transfer(ctx context.Context, tr *persister.Transfer) (persister.Result, error) {
	res, err := m.Store.Transfer(ctx, tr)
	if atomic.AddInt64(&m.lives, -1) < 0 {
		m.dead.Store(true)
		return persister.Result{}, io.ErrUnexpectedEOF
	}
	return res, err
}

// TestConnectionResets: connections are cut in the middle of transactions, before the database sees
// the commit and after it, when only the answer is lost (fault 13).
func TestConnectionResets(t *testing.T) {
	log, server := testkit.NATS(t), testkit.StartPostgres(t)
	dsn := server.Database(t)
	direct := open(t, dsn)
	proxy := newProxy(t, filepath.Join(server.Socket(), ".s.PGSQL.5432"))
	store := open(t, strings.Replace(dsn, server.Socket(), proxy.dir, 1))
	p, stop := persist(t, log, store, persister.Hooks{})
	producer := newProducer(t, log)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() { producer.run(t.Context(), name, 150) })
	}
	proxy.armed.Store(true)
	wg.Wait()
	until(t, func() bool { return proxy.before.Load() > 3 && proxy.after.Load() > 3 || status(p, lagging) == nil })
	proxy.armed.Store(false)
	producer.check(direct, dsn)
	if proxy.before.Load() == 0 || proxy.after.Load() == 0 {
		t.Errorf("the fault never fired: %d connections cut before a commit, %d after", proxy.before.Load(),
			proxy.after.Load())
	}
	stop()
}

func lagging(s persister.Status) bool { return s.Lag.Messages > 0 || s.LagAt.IsZero() }

// proxy stands before the database's socket. Armed, it cuts some connections when a commit passes:
// instead of forwarding it, or after having forwarded it, without its answer.
type proxy struct {
	dir           string
	target        string
	armed         atomic.Bool
	before, after atomic.Int64
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{dir: t.TempDir(), target: target}
	l, err := net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var mute atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if mute.Load() {
				continue // the client never gets the answer to its commit
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		if p.armed.Load() && bytes.Contains(buf[:n], []byte("commit\x00")) {
			switch rand.IntN(6) {
			case 0:
				p.before.Add(1)
				return
			case 1:
				mute.Store(true)
				p.after.Add(1)
				_, _ = server.Write(buf[:n])
				// The server answers when it has committed; then it waits for the next command and
				// sees the end of the connection.
				_ = server.(*net.UnixConn).CloseWrite()
				<-done
				return
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = server.Close()
	<-done
}
