package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// natsNodeEnv makes a NATS child a node of a cluster: its number, and the ports of all.
const natsNodeEnv = "AGENTSTREAM_E2E_NATS_NODE"

// natsNode is what natsNodeEnv says, as JSON.
type natsNode struct {
	Number int
	Ports  [6]int
}

// serveNATSNode is the main function of a node. SIGTERM ends it in order.
func serveNATSNode(dir, text string) error {
	var n natsNode
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return err
	}
	s, err := server.NewServer(testkit.ClusterNode(n.Number, n.Ports, dir))
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("it was shut down")
}

// natsCluster is three NATS servers in processes of their own.
type natsCluster struct {
	t     testing.TB
	nodes [3]*service
	ports [6]int
	admin *nats.Conn
}

// startNATSCluster starts one with its stores in dir, which holds nothing yet, and ends it with the test.
func startNATSCluster(t testing.TB, dir string) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t, ports: testkit.ClusterPorts(t)}
	for i := range c.nodes {
		text, err := json.Marshal(natsNode{i, c.ports})
		if err != nil {
			t.Fatal(err)
		}
		env := []string{natsChildEnv + "=" + filepath.Join(dir, strconv.Itoa(i)), natsNodeEnv + "=" + string(text)}
		c.nodes[i] = newService(t, "nats "+strconv.Itoa(i),
			func() (string, []string, []string) { return os.Args[0], nil, env })
		c.nodes[i].start()
	}
	eventually(t, 30*time.Second, "a node takes connections", func() (ok bool) {
		var err error
		c.admin, err = natskit.Dial(c.url(), "admin", nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
		return err == nil
	})
	t.Cleanup(c.admin.Close)
	return c
}

func (c *natsCluster) url() string { return testkit.ClusterURL(c.ports[:3]) }

// leader returns the number of the node that leads a stream, -1 while none is known to.
func (c *natsCluster) leader(stream string) int {
	var info natsGroup
	m, err := c.admin.Request("$JS.API.STREAM.INFO."+stream, nil, 300*time.Millisecond)
	if err != nil || json.Unmarshal(m.Data, &info) != nil {
		return -1
	}
	return info.leader()
}

type natsGroup struct {
	Cluster struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Current bool `json:"current"`
		} `json:"replicas"`
	} `json:"cluster"`
}

func (g *natsGroup) leader() int {
	var n int
	if _, err := fmt.Sscanf(g.Cluster.Leader, "n%d", &n); err != nil {
		return -1
	}
	return n
}

// lead makes a node lead a stream.
func (c *natsCluster) lead(node int, stream string) {
	c.t.Helper()
	eventually(c.t, 60*time.Second, fmt.Sprintf("node %d leads %s", node, stream), func() bool {
		if c.leader(stream) == node {
			return true
		}
		_, _ = c.admin.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream,
			fmt.Appendf(nil, `{"placement":{"preferred":"n%d"}}`, node), time.Second)
		<-time.After(200 * time.Millisecond)
		return false
	})
}

// led waits until other nodes than gone lead all of the streams, and returns the time.
func (c *natsCluster) led(streams []string, gone int) time.Time {
	c.t.Helper()
	for _, s := range streams {
		eventually(c.t, 60*time.Second, s+" has a leader", func() bool { l := c.leader(s); return l >= 0 && l != gone })
	}
	return time.Now()
}

// whole waits until every node has all of the streams.
func (c *natsCluster) whole(streams []string) {
	c.t.Helper()
	for _, s := range streams {
		eventually(c.t, 60*time.Second, "all replicas of "+s+" are current", func() bool { return current(c.admin, s) })
	}
}
