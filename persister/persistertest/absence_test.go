package persistertest_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// persistFrom runs a persister from the log at a connection.
func persistFrom(t *testing.T, nc *nats.Conn, queue natsjs.Config, cfg persister.Config) (p *persister.Persister,
	stop func()) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Queues, err = natsjs.Queues(t.Context(), js, queue); err != nil {
		t.Fatal(err)
	}
	if p, err = persister.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return p, stop
}

func heap() int {
	runtime.GC()
	runtime.GC() // what pools hold survives one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// publishFirst publishes a pack of ten events in some runs of each stream, by which a persister learns what their
// messages hold. It returns the number of events.
func publishFirst(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	const runs, each = 8 * ratePartitions, 10
	for i := range runs {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("first_", i)}, "20260228")
		p := w.Texts("", each)
		msg := &nats.Msg{Subject: schema.Subject(p.Key, "", ratePartitions), Header: p.Headers(), Data: p.Body}
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	return runs * each
}

// TestOutageHoldsLittle: the database is away while 200,000 events arrive. Memory stays within its bound,
// then nothing is held at all; the status shows it; and the backlog is stored faster than it came.
func TestOutageHoldsLittle(t *testing.T) {
	pg := testkit.StartPostgres(t)
	dsn := pg.Database(t)
	store := open(t, dsn)
	log := startRateLog(t)
	nc, err := natskit.Dial(log.url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const bound = 16 << 20
	p, stop := persistFrom(t, nc, natsjs.Config{}, persister.Config{
		Store: store, HeldBytes: bound, Hold: 4 * time.Second, RetryMax: time.Second, LagEvery: 200 * time.Millisecond,
	})
	first := publishFirst(t, nc)
	until(t, func() bool {
		unknown := status(p, func(s persister.Status) bool { return s.Inserted == 0 })
		return commits(p) == first && unknown == nil
	})
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	before := heap()
	began := time.Now()
	var arrived atomic.Int64 // how long it took
	go func() {
		fmt.Fprintln(log.in, "load 10")
		log.out.Scan()
		arrived.Store(int64(time.Since(began)))
	}()
	held, most := 0, 0
	for n := 0; arrived.Load() == 0 || time.Since(began) < time.Duration(arrived.Load())+10*time.Second; n++ {
		sum := 0
		for _, s := range p.Status() {
			sum += s.HeldBytes
		}
		held = max(held, sum)
		if n%10 == 0 { // a collection each time
			most = max(most, heap()-before)
		}
		<-time.After(50 * time.Millisecond)
	}
	after := heap() - before
	t.Logf("200,000 events in %v; held at most %d KiB by count, %d KiB by heap; %d KiB after the batches were let go",
		time.Duration(arrived.Load()), held>>10, most>>10, after>>10)
	if held == 0 || held > bound*5/4 || most > 2*bound || after > bound/4 {
		t.Errorf("the bound is %d KiB", bound>>10)
	}
	for _, s := range p.Status() {
		if s.RetryingSince.IsZero() || s.LastError == "" || s.Lag.Messages == 0 || s.LagEvents < 9*s.Lag.Messages {
			t.Errorf("status in the outage: %+v", s)
		}
	}
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	until(t, func() bool { return commits(p) == first+drainEvents })
	t.Logf("caught up after %v", time.Since(began))
	stop()
	var repeated uint64
	for _, s := range p.Status() {
		repeated += s.Repeated
	}
	if repeated > 0 {
		t.Errorf("%d rows were written twice", repeated)
	}
	log.stop(t)
}

// TestLogAway: NATS is stopped and started again, with a fetch under way, and everything flows soon after.
func TestLogAway(t *testing.T) {
	dir, port := t.TempDir(), testkit.FreePort(t)
	var srv *server.Server
	serve := func() {
		t.Helper()
		var err error
		if srv, err = natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: "127.0.0.1", Port: port}); err != nil {
			t.Fatal(err)
		}
	}
	serve()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := natskit.Dial(srv.ClientURL(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	store := persistertest.NewMemory()
	p, stop := persistFrom(t, nc, natsjs.Config{},
		persister.Config{Store: store, RetryMax: time.Second, LagEvery: 100 * time.Millisecond})
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "r"}, "20260228")
	var want uint64
	for range 3 {
		for range 50 {
			pack := w.Texts("", 4)
			m := &nats.Msg{Subject: schema.Subject(pack.Key, "", 2), Header: pack.Headers(), Data: pack.Body}
			if _, err := js.PublishMsg(t.Context(), m, jetstream.WithRetryAttempts(50)); err != nil {
				t.Fatal(err)
			}
			want += 4
		}
		until(t, func() bool { return commits(p) == want })
		srv.Shutdown()
		srv.WaitForShutdown()
		until(t, func() bool {
			return status(p, func(s persister.Status) bool { return !s.RetryingSince.IsZero() }) != nil
		})
		serve()
		until(t, func() bool {
			return status(p, func(s persister.Status) bool { return !s.RetryingSince.IsZero() }) == nil
		})
	}
	stop()
}

// TestLeadersChange: the nodes of a cluster are stopped one after the other; a persister goes on with the
// two that are left, and what it writes is what was published.
func TestLeadersChange(t *testing.T) {
	c := testkit.NATSCluster(t)
	nc := c.Dial(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store := persistertest.NewMemory()
	p, stop := persistFrom(t, nc, natsjs.Config{},
		persister.Config{Store: store, RetryMax: time.Second, Linger: 50 * time.Millisecond,
			LagEvery: 100 * time.Millisecond})
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "r"}, "20260228")
	want := uint64(0)
	publish := func() {
		t.Helper()
		pack := w.Texts("", 4)
		m := &nats.Msg{Subject: schema.Subject(pack.Key, "", c.Partitions), Header: pack.Headers(), Data: pack.Body}
		for deadline := time.Now().Add(40 * time.Second); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := js.PublishMsg(ctx, m)
			cancel()
			if err == nil { // twice stored is found to be the same
				want += 4
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	for i := range c.Servers {
		publish()
		c.Stop(i)
		for range 20 {
			publish()
		}
		began := time.Now()
		until(t, func() bool { return commits(p) == want })
		t.Logf("without node %d: stored %v after the last was published", i, time.Since(began))
		c.Start(t, i)
		// Another one stopped now would be two that are away, where one is what a cluster of three bears.
		until(t, func() bool { return caughtUp(t, js, c.Partitions) })
	}
	stop()
}

// caughtUp reports whether all copies of all streams are current.
func caughtUp(t *testing.T, js jetstream.JetStream, partitions int) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	current := func(c *jetstream.ClusterInfo) bool {
		if c == nil || c.Leader == "" || len(c.Replicas) < 2 {
			return false
		}
		for _, r := range c.Replicas {
			if !r.Current || r.Offline || r.Lag > 0 {
				return false
			}
		}
		return true
	}
	for n := range partitions {
		s, err := js.Stream(ctx, natskit.StreamName(n))
		if err != nil || !current(s.CachedInfo().Cluster) {
			return false
		}
	}
	return true
}
