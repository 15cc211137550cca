//go:build upgrade

package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

// TestUpgradeBack: after an upgrade the older release, named by AGENTSTREAM_PREVIOUS, is started again beside the new
// tables. It becomes ready, serves what the newer one has stored with the same bytes, stores what comes, and the newer
// release then goes on with that.
func TestUpgradeBack(t *testing.T) {
	const each = 10
	w := newOlderWorld(t, os.Getenv("AGENTSTREAM_PREVIOUS"))
	begin := func(addr, prefix string) {
		for i := range each {
			url := fmt.Sprintf("http://%s/v1/agent/runs/%s-%d/events", addr, prefix, i)
			body := `{"type":"text.delta","payload":{"text":"` + prefix + `"}}` + "\n" +
				`{"type":"run.lifecycle","payload":{"state":"done"}}` + "\n"
			if _, _, err := post(t.Context(), http.DefaultClient, url, fmt.Sprint(prefix, i), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := func(what, addr string, runs int) {
		eventually(t, 60*time.Second, what, func() bool { n, _ := listed(addr); return n == runs })
		eventually(t, 60*time.Second, what+": everything is stored", func() bool {
			left, err := pending(t.Context(), w.nats.url(), w.dsn)
			return err == nil && left == 0
		})
	}
	edge := w.edge(t)
	begin(edge.addr, "older")
	all("the older edge lists its runs", edge.addr, each)
	migrate(t, w.dsn, w.nats.url())
	mine, next := newRole(t, "persist", w.nats.url(), w.dsn), newRole(t, "edge", w.nats.url(), w.dsn)
	for _, r := range []*role{mine, next} {
		r.start()
		r.await(t)
	}
	w.older.kill()
	edge.kill()
	begin(next.addr, "newer")
	all("the newer edge lists its runs", next.addr, 2*each)
	stored := events(t, "http://"+next.addr+"/v1/agent/runs/newer-0")
	mine.kill()
	next.kill()
	w.older.start()
	edge = w.edge(t)
	begin(edge.addr, "back")
	all("the older edge lists all runs again", edge.addr, 3*each)
	if again := events(t, "http://"+edge.addr+"/v1/agent/runs/newer-0"); len(stored) == 0 || !slices.Equal(again, stored) {
		t.Errorf("the older edge serves %q, the newer one %q", again, stored)
	}
	w.older.kill()
	for _, r := range []*role{mine, next} {
		r.start()
		r.await(t)
	}
	all("the newer edge lists all runs", next.addr, 3*each)
}
