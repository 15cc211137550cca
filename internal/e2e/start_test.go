package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// Two edges and a persister are started on a cluster that holds nothing, before migrate runs and while it does.
// None of them ends: they wait, not ready and saying why, and serve when everything is there.
func TestRolesStartBeforeMigrate(t *testing.T) {
	beside(t)
	postgres := testkit.StartPostgres(t)
	for round := range min(kills(t, 2), 10) {
		c := startNATSCluster(t, t.TempDir())
		dsn := postgres.Database(t)
		edges := []*role{newRole(t, "edge", c.url(), dsn), newRole(t, "edge", c.url(), dsn)}
		roles := append([]*role{newRole(t, "persist", c.url(), dsn)}, edges...)
		begun := time.Now()
		for _, r := range roles {
			r.start()
		}
		if round%2 == 0 {
			for _, r := range roles {
				eventually(t, 60*time.Second, r.name+" says what it waits for", func() bool {
					status, text := r.ready()
					return status == http.StatusServiceUnavailable && strings.Contains(text, `"migrate":`)
				})
			}
		}
		migrate(t, dsn, c.url(), "--replicas", "3")
		made := time.Now()
		for _, r := range roles {
			r.await(t)
			if n := r.revived.Load(); n > 0 {
				t.Errorf("round %d: %s ended %d times: %s", round, r.name, n, tail(r.log.String(), 2000))
			}
		}
		t.Logf("round %d: migrate had made everything after %s, all roles were ready %s later", round,
			made.Sub(begun).Round(time.Millisecond), time.Since(made).Round(time.Millisecond))
		for i, e := range edges {
			key := fmt.Sprint("start-", i)
			if answer, _, err := post(t.Context(), http.DefaultClient, "http://"+e.addr+"/v1/agent/runs/"+key+"/events",
				key, []byte(keyedEvent(i, 0))); err != nil {
				t.Errorf("round %d: edge %d: %s %v", round, i, answer, err)
			}
		}
		for _, r := range roles {
			r.kill()
		}
		for _, n := range c.nodes {
			n.kill()
		}
	}
}

// Roles that start before NATS do not end: they are alive and not ready, name NATS to operators and to probes, and
// serve when it has come, together with what migrate makes.
func TestRolesStartBeforeNATS(t *testing.T) {
	beside(t)
	port := testkit.FreePort(t)
	url, dsn, probes := fmt.Sprintf("nats://127.0.0.1:%d", port), testkit.Postgres(t), testkit.FreeAddr(t)
	roles := []*role{newRole(t, "edge", url, dsn, "--health-listen", probes), newRole(t, "persist", url, dsn)}
	for _, r := range roles {
		r.start()
	}
	for _, r := range roles {
		eventually(t, 60*time.Second, r.name+" waits for NATS", func() bool {
			status, text := r.ready()
			return status == http.StatusServiceUnavailable && strings.Contains(text, "no server answers")
		})
	}
	if status, text := getText("http://" + probes + "/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(text, `"nats":"failed"`) {
		t.Errorf("a probe is answered %d %s", status, text)
	}
	if status, _ := getText("http://" + probes + "/healthz"); status != http.StatusOK {
		t.Errorf("whether it is alive is answered %d", status)
	}
	if status, _ := getText("http://" + probes + "/metrics"); status != http.StatusNotFound {
		t.Errorf("the listener for probes answers for metrics: %d", status)
	}
	s, err := natskit.Serve(natskit.Embedded{StoreDir: t.TempDir(), Listen: "127.0.0.1", Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	migrate(t, dsn, url)
	for _, r := range roles {
		r.await(t)
		if n := r.revived.Load(); n > 0 {
			t.Errorf("%s ended %d times: %s", r.name, n, tail(r.log.String(), 2000))
		}
	}
	eventually(t, 60*time.Second, "a probe is told that the edge is ready", func() bool {
		status, text := getText("http://" + probes + "/readyz")
		return status == http.StatusOK && strings.Contains(text, `"nats":"ok"`)
	})
}
