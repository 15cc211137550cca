package testkit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
)

// Cluster is three NATS servers on loopback whose log has three replicas. Only a cluster has stale
// replicas, leaders that change, and answers like "another compare-and-set is in flight".
type Cluster struct {
	Servers    [3]*server.Server
	Partitions int
	opts       [3]*server.Options
}

// NATSCluster starts a cluster with file stores in temporary directories, declares a log of two
// partitions on it, and stops it when the test ends.
func NATSCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{Partitions: 2}
	ports := ClusterPorts(t)
	for i := range c.Servers {
		c.opts[i] = ClusterNode(i, ports, t.TempDir())
		c.opts[i].NoSigs = true
		c.Start(t, i)
	}
	t.Cleanup(func() {
		for i := range c.Servers {
			c.Stop(i)
		}
	})
	js, err := jetstream.New(c.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for { // until the cluster has a leader; before that, nobody answers
		once, cancel := context.WithTimeout(ctx, 3*time.Second)
		err = natskit.Declare(once, js, natskit.Layout{Partitions: c.Partitions, Replicas: 3})
		cancel()
		if err == nil {
			return c
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ClusterPorts returns free ports for a cluster: those of the nodes' clients, then those of their routes.
func ClusterPorts(t testing.TB) (ports [6]int) {
	t.Helper()
	for i := range ports {
		ports[i] = FreePort(t)
	}
	return ports
}

// ClusterNode is the configuration of node i of a cluster of three, with its store in dir. On SIGTERM, a
// process that runs it hands its leaders over and ends.
func ClusterNode(i int, ports [6]int, dir string) *server.Options {
	return &server.Options{
		ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: ports[i],
		JetStream: true, StoreDir: dir, NoLog: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 30,
		Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[3+i]},
		Routes:  server.RoutesFromStr(ClusterURL(ports[3:])),
	}
}

// ClusterURL lists servers by their ports.
func ClusterURL(ports []int) string {
	var urls []string
	for _, p := range ports {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	return strings.Join(urls, ",")
}

// Start starts server i, again after Stop on the same store.
func (c *Cluster) Start(t testing.TB, i int) {
	t.Helper()
	s, err := server.NewServer(c.opts[i])
	if err != nil {
		t.Fatal(err)
	}
	go s.Start() // returns when the server is up
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatalf("server %d is not ready", i)
	}
	c.Servers[i] = s
}

// Stop stops server i.
func (c *Cluster) Stop(i int) {
	c.Servers[i].Shutdown()
	c.Servers[i].WaitForShutdown()
}

// Dial connects to the cluster, closed when the test ends.
func (c *Cluster) Dial(t testing.TB) *nats.Conn {
	t.Helper()
	var ports []int
	for _, o := range c.opts {
		ports = append(ports, o.Port)
	}
	nc, err := natskit.Dial(ClusterURL(ports), t.Name(), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Leader returns the number of the server that leads a stream, once one does.
func (c *Cluster) Leader(t testing.TB, stream string) int {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		for i, s := range c.Servers {
			if s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
				return i
			}
		}
	}
	t.Fatalf("nobody leads %s", stream)
	return -1
}
