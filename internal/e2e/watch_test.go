package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// watchedRuns is how many runs one edge watches at once. Each needs a descriptor here and one there.
const watchedRuns = 10_000

// One edge watches 10,000 runs: consumers at the broker do not grow with watchers, a subscription
// per watched run is all there is, and whatever is published arrives.
func TestTenThousandWatchedRuns(t *testing.T) {
	beside(t)
	raiseDescriptors(t, watchedRuns+2000)
	k := testkit.NATS(t)
	url := k.Server.ClientURL()
	storeRuns(t, k)
	p := newProc(t, "edge", "--nats", url, "--level", "warn", "--keep-alive", "10m")
	p.start()
	before := consumers(t, url)
	subs := subscriptions(t, k.Server)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var arrived [watchedRuns]atomic.Int64
	var ready atomic.Int64
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64) // connections that are being opened
	began := time.Now()
	for i := range watchedRuns {
		slots <- struct{}{}
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /v1/agent/runs/run_%d/stream?detail=full HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\n\r\n", i, edgeToken)
		wg.Go(func() { count(ctx, conn, &arrived[i], func() { ready.Add(1); <-slots }) })
	}
	eventually(t, time.Minute, "all streams have their first event", func() bool { return ready.Load() == watchedRuns })
	t.Logf("%d runs watched after %s", watchedRuns, time.Since(began).Round(time.Millisecond))
	if during := consumers(t, url); during != before {
		t.Fatalf("%d consumers before, %d with %d watched runs", before, during, watchedRuns)
	}
	grown := subscriptions(t, k.Server) - subs
	if subs != 0 || grown != watchedRuns {
		t.Fatalf("%d subscriptions for %d watched runs", grown, watchedRuns)
	}
	publishSome(t, k)
	eventually(t, time.Minute, "what was published arrives", func() bool {
		for i := 0; i < watchedRuns; i += 20 {
			if arrived[i].Load() != 2 {
				return false
			}
		}
		return true
	})
	t.Logf("consumers at the broker: %d before, %d with %d watched runs; subscriptions: +%d", before, consumers(t, url),
		watchedRuns, grown)
	cancel()
	wg.Wait()
	eventually(t, time.Minute, "interest ends with the watchers", func() bool { return subscriptions(t, k.Server) == 0 })
}

// count counts events on a raw connection until ctx ends.
func count(ctx context.Context, conn net.Conn, n *atomic.Int64, first func()) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 1024)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(line, "id: ") && n.Add(1) == 1 {
			first()
		}
	}
}

func delta(text string) schema.Event {
	return schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":%q}`, text)}
}

func storeRuns(t *testing.T, k *testkit.Server) {
	t.Helper()
	appendTo(t, k, watchedRuns, 1)
}

// publishSome appends one event to every twentieth run.
func publishSome(t *testing.T, k *testkit.Server) {
	t.Helper()
	appendTo(t, k, watchedRuns, 20)
}

func appendTo(t *testing.T, k *testkit.Server, runs, step int) {
	t.Helper()
	log, err := pubjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	a, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w * step; i < runs; i += 16 * step {
				key := schema.RunKey{Tenant: "default", Run: fmt.Sprintf("run_%d", i)}
				if _, err := a.Append(t.Context(), key, []schema.Event{delta("x")}, producers.AppendOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func consumers(t *testing.T, url string) int {
	n := 0
	eachStream(t, url, func(s jetstream.Stream) { n += s.CachedInfo().State.Consumers })
	return n
}

// subscriptions counts those to live copies: others, such as inboxes, come and go.
func subscriptions(t *testing.T, s *server.Server) int {
	t.Helper()
	z, err := s.Subsz(&server.SubszOptions{Subscriptions: true, Limit: 10 * watchedRuns})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, sub := range z.Subs {
		if strings.HasPrefix(sub.Subject, schema.LivePrefix+".") {
			n++
		}
	}
	return n
}

// raiseDescriptors lifts the soft limit; a hard limit below n cannot hold the test.
func raiseDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if lim.Max < n {
		t.Fatalf("%d descriptors allowed, %d needed: raise the hard limit (ulimit -Hn)", lim.Max, n)
	}
	lim.Cur = lim.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
}
