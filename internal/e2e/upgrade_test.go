//go:build upgrade

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
)

// TestUpgradeUnderLoad: a persister of an older release, named by AGENTSTREAM_PREVIOUS, is followed by one of this
// release while agents publish, first beside it and then alone. Rows equal the log, and nothing is lost or set aside.
// `make upgrade` runs it.
func TestUpgradeUnderLoad(t *testing.T) {
	w := newOlderWorld(t, os.Getenv("AGENTSTREAM_PREVIOUS"))
	done := tellers(t, w.nats.url(), 5, 1)
	<-time.After(5 * time.Second)
	migrate(t, w.dsn, w.nats.url())
	mine := newRole(t, "persist", w.nats.url(), w.dsn)
	mine.start()
	mine.await(t)
	<-time.After(8 * time.Second)
	if n := w.older.kill(); !n {
		t.Error("the older persister had ended")
	}
	<-time.After(10 * time.Second)
	told := done()
	eventually(t, 60*time.Second, "everything is stored", func() bool {
		left, err := pending(t.Context(), w.nats.url(), w.dsn)
		return err == nil && left == 0
	})
	for _, complaint := range judgeArchive(readLog(t, w.nats.url()), readArchive(t, w.admin), told) {
		t.Error(complaint)
	}
	t.Logf("%d events were acknowledged over the upgrade", len(told))
	eventually(t, 60*time.Second, "the older release's consumers are gone",
		func() bool { return consumersNamed(t, w.nats.url(), "persist") == 0 })
}

// TestUpgradeEdge: an edge of an older release lists all runs, or refuses, while migrate runs and after it, until an
// edge of this release does. Tables are owned as in production, by a role that row security holds. With
// AGENTSTREAM_MAY_REFUSE the older release is from before row security: what it asks is refused then, and never
// answered wrongly.
func TestUpgradeEdge(t *testing.T) {
	const runs = 20
	w := newOlderWorld(t, os.Getenv("AGENTSTREAM_PREVIOUS"))
	edge := w.edge(t)
	for i := range runs {
		url := fmt.Sprintf("http://%s/v1/agent/runs/older-%d/events", edge.addr, i)
		body := `{"type":"run.lifecycle","payload":{"state":"done"}}`
		if _, _, err := post(t.Context(), http.DefaultClient, url, fmt.Sprint(i), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 60*time.Second, "the older edge lists its runs",
		func() bool { n, _ := listed(edge.addr); return n == runs })
	var wrong, refused, right atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			switch n, status := listed(edge.addr); {
			case status == http.StatusServiceUnavailable:
				refused.Add(1)
			case status != http.StatusOK || n != runs:
				wrong.Add(1)
				t.Errorf("the older edge lists %d runs of %d, status %d", n, runs, status)
				return
			default:
				right.Add(1)
			}
		}
	})
	defer asking.Wait()
	defer stop()
	migrate(t, w.dsn, w.nats.url())
	seen := right.Load() + refused.Load()
	eventually(t, 30*time.Second, "the older edge is asked behind migrate",
		func() bool { return wrong.Load() > 0 || right.Load()+refused.Load() > seen+50 })
	mine := newRole(t, "persist", w.nats.url(), w.dsn)
	mine.start()
	mine.await(t)
	w.older.kill()
	seen = right.Load() + refused.Load()
	eventually(t, 30*time.Second, "the older edge is asked beside the new persister",
		func() bool { return wrong.Load() > 0 || right.Load()+refused.Load() > seen+50 })
	next := newRole(t, "edge", w.nats.url(), w.dsn)
	next.start()
	next.await(t)
	if n, status := listed(next.addr); n != runs {
		t.Errorf("the new edge lists %d runs of %d, status %d", n, runs, status)
	}
	t.Logf("asked over the upgrade, the older edge has listed all runs %d times and refused %d times", right.Load(),
		refused.Load())
	if refused.Load() > 0 && os.Getenv("AGENTSTREAM_MAY_REFUSE") == "" {
		t.Error("the older edge refuses")
	}
}

// listed is how many runs an edge lists.
func listed(addr string) (n, status int) {
	status, text := getText("http://" + addr + "/v1/agent/runs?limit=100")
	var page struct{ Runs []json.RawMessage }
	if status == http.StatusOK && json.Unmarshal([]byte(text), &page) != nil {
		return -1, status
	}
	return len(page.Runs), status
}

// olderWorld is a log and a database as an older release has made them, with its persister.
type olderWorld struct {
	nats   *natsProc
	admin  string // a superuser's DSN
	dsn    string // the owner's
	older  *service
	binary string
}

func newOlderWorld(t *testing.T, binary string) *olderWorld {
	t.Helper()
	if binary == "" {
		t.Fatal("AGENTSTREAM_PREVIOUS names no binary")
	}
	w := &olderWorld{nats: startNATS(t, t.TempDir()), binary: binary}
	w.admin = testkit.Postgres(t)
	w.dsn = testkit.GiveToOwner(t, w.admin)
	cmd := command(binary, "migrate", "--nats", w.nats.url(), "--partitions", "4")
	cmd.Env = append(cmd.Environ(), "AGENTSTREAM_POSTGRES="+w.dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("migrate of the older release: %v\n%s", err, out)
	}
	w.older = newService(t, "older persist", func() (string, []string, []string) {
		return binary, []string{"persist", "--nats", w.nats.url(), "--admin-listen",
			"off"}, []string{"AGENTSTREAM_POSTGRES=" + w.dsn}
	})
	w.older.start()
	return w
}

// edge starts an edge of the older release.
func (w *olderWorld) edge(t *testing.T) *role {
	t.Helper()
	r := &role{admin: testkit.FreeAddr(t), addr: testkit.FreeAddr(t)}
	r.service = newService(t, "older edge", func() (string, []string, []string) {
		return w.binary, []string{"edge", "--nats", w.nats.url(), "--admin-listen", r.admin, "--listen", r.addr,
				"--auth-token", edgeToken},
			[]string{"AGENTSTREAM_POSTGRES=" + w.dsn}
	})
	r.start()
	r.await(t)
	return r
}

// consumersNamed counts the streams that have a consumer of that name.
func consumersNamed(t *testing.T, url, name string) (n int) {
	t.Helper()
	eachStream(t, url, func(s jetstream.Stream) {
		if _, err := s.Consumer(t.Context(), name); err == nil {
			n++
		}
	})
	return n
}
