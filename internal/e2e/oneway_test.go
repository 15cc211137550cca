package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// oneWay is an edge and a persister of which each way to NATS and to PostgreSQL can be lost in one direction.
type oneWay struct {
	edge, persist         *proc
	nats, postgres, front *testkit.OneWay
}

func startOneWay(t *testing.T) *oneWay {
	t.Helper()
	log, server := testkit.NATS(t), testkit.StartPostgres(t)
	dsn := server.Database(t)
	migrate(t, dsn, log.Server.ClientURL())
	dir := t.TempDir()
	w := &oneWay{
		nats: testkit.NewOneWay(t, "tcp", "127.0.0.1:0",
			strings.TrimPrefix(log.Server.ClientURL(), "nats://")),
		postgres: testkit.NewOneWay(t, "unix", filepath.Join(dir, ".s.PGSQL.5432"),
			filepath.Join(server.Socket(), ".s.PGSQL.5432")),
	}
	env := []string{"AGENTSTREAM_POSTGRES=" + strings.Replace(dsn, server.Socket(), dir, 1)}
	w.persist = newProc(t, "persist", "--nats", "nats://"+w.nats.Addr)
	w.edge = newProc(t, "edge", "--nats", "nats://"+w.nats.Addr)
	for _, p := range []*proc{w.persist, w.edge} {
		p.env = env
		p.start()
	}
	w.front = testkit.NewOneWay(t, "tcp", "127.0.0.1:0", w.edge.addr)
	return w
}

// readyz is the status of a process's readiness; 0: it does not answer.
func readyz(p *proc) int {
	client := &http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + p.admin + "/readyz")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestOneWayNetwork: where the network loses what goes in one direction and tells nobody, between the nodes and NATS,
// the nodes and PostgreSQL, and clients and the edge, every event that was acknowledged is there once and in order,
// whatever is not is acknowledged after a repeat with its key, a node that cannot do its work says so, and all come
// back by themselves.
func TestOneWayNetwork(t *testing.T) {
	beside(t)
	w := startOneWay(t)
	var acked atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	wrote := make(chan error, 1)
	run := "/v1/agent/runs/oneway"
	go func() {
		client := &http.Client{Timeout: 3 * time.Second, Transport: withToken{&http.Transport{DisableKeepAlives: true}}}
		for n := 1; ctx.Err() == nil; n++ {
			body := fmt.Appendf(nil, `{"type":"text.delta","payload":{"text":"%d"}}`+"\n", n)
			at, key := "http://"+w.front.Addr+run+"/events", fmt.Sprint("k", n)
			if _, _, err := post(context.WithoutCancel(ctx), client, at, key, body); err != nil {
				wrote <- err
				return
			}
			acked.Store(int64(n))
		}
		wrote <- nil
	}()
	goesOn := func(what string) {
		t.Helper()
		n := acked.Load()
		eventually(t, 60*time.Second, what, func() bool { return acked.Load() > n+5 })
	}
	goesOn("events are acknowledged")
	both := []*proc{w.edge, w.persist}
	for _, c := range []struct {
		name      string
		way       *testkit.OneWay
		direction int
		lose      bool    // what was kept never arrives; else it does, late
		tell      []*proc // who say that they are not ready
	}{
		{"to NATS, lost", w.nats, testkit.ToServer, true, both},
		{"to NATS, late", w.nats, testkit.ToServer, false, both},
		{"from NATS, lost", w.nats, testkit.ToClient, true, both},
		{"from NATS, late", w.nats, testkit.ToClient, false, both},
		{"to PostgreSQL, late", w.postgres, testkit.ToServer, false, both[1:]},
		{"from PostgreSQL, lost", w.postgres, testkit.ToClient, true, both[1:]},
		{"to the edge, late", w.front, testkit.ToServer, false, nil},
		{"from the edge, lost", w.front, testkit.ToClient, true, nil},
	} {
		begun := time.Now()
		c.way.Break(c.direction)
		for _, p := range c.tell {
			eventually(t, 30*time.Second, p.args[0]+" is not ready: "+c.name, func() bool {
				return readyz(p) == http.StatusServiceUnavailable
			})
		}
		if c.tell == nil {
			time.Sleep(4 * time.Second) // longer than a client waits
		}
		told := time.Since(begun)
		c.way.Heal(c.lose)
		for _, p := range both {
			eventually(t, 60*time.Second, p.args[0]+" is ready again: "+c.name, func() bool {
				return readyz(p) == http.StatusOK
			})
		}
		goesOn("events are acknowledged again: " + c.name)
		t.Logf("%s: told after %v, over after %v", c.name, told, time.Since(begun))
	}
	stop()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	all := events(t, w.edge.url(run))
	for i, line := range all {
		var e struct {
			Seq     int
			Payload struct{ Text string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != i+1 || e.Payload.Text != fmt.Sprint(i+1) {
			t.Fatalf("event %d: %s", i+1, line)
		}
	}
	if n := acked.Load(); int64(len(all)) != n {
		t.Errorf("%d events, %d were acknowledged", len(all), n)
	}
}
