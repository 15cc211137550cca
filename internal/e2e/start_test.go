package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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
			if answer, _, err := post(t.Context(), http.DefaultClient, "http://"+e.addr+"/v1/agent/runs/"+key+"/events", key, []byte(keyedEvent(i, 0))); err != nil {
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
