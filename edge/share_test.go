package edge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
)

// One tenant fills a node: hundreds of its reads of every kind wait for ever, and it has as many streams as it may. What others
// read and command is answered meanwhile, and so is what the tenant itself commands. Before, the first eight held all of it for as
// long as the log had.
func TestOneTenantFillsANode(t *testing.T) {
	h := newHouse(t, talking, func(c *edge.Config) {
		c.MaxStreams, c.IngestLimit = 1000, edge.IngestLimit{Streams: 300}
		c.LogTimeout = time.Hour
	})
	const big, runs = "big", 10
	for i := range 2 * runs {
		h.must(fmt.Sprint("stuck", i), "run.lifecycle", `{"state":"running"}`, tenantHeader, big)
	}
	for _, tenant := range []string{big, "small", "other"} {
		h.must("run", "run.lifecycle", `{"state":"running"}`, tenantHeader, tenant)
		h.must("run", "input.requested", `{"request_id":"q","question":"?"}`, tenantHeader, tenant)
		h.must("run", "text.delta", `{"text":"a"}`, tenantHeader, tenant)
	}
	h.log.stuck.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	fill := func(from int, asks ...string) {
		t.Helper()
		before := h.log.waits.Load()
		for i := range 3 * runs {
			for _, ask := range asks {
				method, path, _ := strings.Cut(ask, " ")
				work.Go(func() {
					req := h.request(method, fmt.Sprintf("/v1/agent/runs/stuck%d/%s", from+i%runs, path), "", tenantHeader, big).WithContext(ctx)
					if resp, err := client.Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
			}
		}
		eventually(t, "the node is full of one tenant", func() bool { return h.log.waits.Load() >= before+5 })
	}
	fill(0, "GET snapshot", "GET snapshot?at=1", "GET events", "GET events?order=desc", "GET steps", "GET replay.jsonl", "GET stream?detail=full", "GET stream")
	if a := h.do("POST", "/v1/agent/runs/run/pause", "", tenantHeader, big); a.status != 202 {
		t.Errorf("a command of the tenant itself: %d %s", a.status, a.body)
	}
	fill(runs, "POST pause", "POST cancel")
	for _, tenant := range []string{"small", "other"} {
		for _, ask := range []string{"GET snapshot", "GET snapshot?at=1", "GET events", "GET events?order=desc", "GET steps", "GET replay.jsonl", "GET ", "POST answer", "POST pause", "POST messages", "POST cancel"} {
			method, path, _ := strings.Cut(ask, " ")
			body := map[string]string{"answer": `{"request_id":"q","answer":"!"}`, "messages": `{"content":"go on"}`}[path]
			a := h.do(method, strings.TrimSuffix("/v1/agent/runs/run/"+path, "/"), body, tenantHeader, tenant)
			if a.status >= 300 {
				t.Errorf("%s of another tenant: %d %s", ask, a.status, a.body)
			}
		}
		h.mustTap("sse", "/v1/agent/runs/run/stream?detail=full", 0, tenantHeader, tenant)
	}
}
