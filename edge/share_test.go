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
	"agentstream/edge/edgetest"
)

// One tenant fills a node: hundreds of its reads of every kind wait for ever, and it has as many streams as it may.
// What others read and command is answered meanwhile, and so is what the tenant itself commands. Before, the first
// eight held all of it for as long as the log had.
func TestOneTenantFillsANode(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
		c.MaxStreams, c.IngestLimit = 1000, edge.IngestLimit{Streams: 300}
		c.LogTimeout = time.Hour
	})
	const big, runs = "big", 10
	for i := range 2 * runs {
		h.Must(fmt.Sprint("stuck", i), "run.lifecycle", `{"state":"running"}`, edgetest.TenantHeader, big)
	}
	for _, tenant := range []string{big, "small", "other"} {
		h.Must("run", "run.lifecycle", `{"state":"running"}`, edgetest.TenantHeader, tenant)
		h.Must("run", "input.requested", `{"request_id":"q","question":"?"}`, edgetest.TenantHeader, tenant)
		h.Must("run", "text.delta", `{"text":"a"}`, edgetest.TenantHeader, tenant)
	}
	h.Log.Stuck.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	fill := func(from int, asks ...string) {
		t.Helper()
		before := h.Log.Waits.Load()
		for i := range 3 * runs {
			for _, ask := range asks {
				method, path, _ := strings.Cut(ask, " ")
				work.Go(func() {
					req := h.Request(method, fmt.Sprintf("/v1/agent/runs/stuck%d/%s", from+i%runs, path), "",
						edgetest.TenantHeader, big).WithContext(ctx)
					if resp, err := client.Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
			}
		}
		edgetest.Eventually(t, "the node is full of one tenant", func() bool { return h.Log.Waits.Load() >= before+5 })
	}
	fill(0, "GET snapshot", "GET snapshot?at=1", "GET events", "GET events?order=desc", "GET steps", "GET replay.jsonl",
		"GET stream?detail=full", "GET stream")
	if a := h.Do("POST", "/v1/agent/runs/run/pause", "", edgetest.TenantHeader, big); a.Status != 202 {
		t.Errorf("a command of the tenant itself: %d %s", a.Status, a.Body)
	}
	fill(runs, "POST pause", "POST cancel")
	for _, tenant := range []string{"small", "other"} {
		for _, ask := range []string{"GET snapshot", "GET snapshot?at=1", "GET events", "GET events?order=desc",
			"GET steps", "GET replay.jsonl", "GET ", "POST answer", "POST pause", "POST messages", "POST cancel"} {
			method, path, _ := strings.Cut(ask, " ")
			body := map[string]string{"answer": `{"request_id":"q","answer":"!"}`, "messages": `{"content":"go on"}`}[path]
			a := h.Do(method, strings.TrimSuffix("/v1/agent/runs/run/"+path, "/"), body, edgetest.TenantHeader, tenant)
			if a.Status >= 300 {
				t.Errorf("%s of another tenant: %d %s", ask, a.Status, a.Body)
			}
		}
		h.MustTap("sse", "/v1/agent/runs/run/stream?detail=full", 0, edgetest.TenantHeader, tenant)
	}
}
