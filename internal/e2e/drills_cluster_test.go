package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// newClusterDrill is newDrill on three NATS servers, whose stores are folders of dir.
func newClusterDrill(t *testing.T, dir string) (*drill, *natsCluster) {
	t.Helper()
	beside(t)
	c := startNATSCluster(t, dir)
	d := &drill{t: t, natsURL: c.url(), dsn: testkit.GiveToOwner(t, testkit.Postgres(t)),
		blobs: filepath.Join(t.TempDir(), "blobs"), told: make(map[string][]string)}
	migrate(t, d.dsn, d.natsURL, "--replicas", "3")
	d.roles()
	d.start()
	return d, c
}

// TestDrillQuorumLost: two of three servers hang, while the third leads and can be read. Appends wait their time, and
// are told that no answer came: no disk is full. They go on when the servers are back, and nothing is lost.
func TestDrillQuorumLost(t *testing.T) {
	d, c := newClusterDrill(t, t.TempDir())
	const run = "run_1"
	d.tell(run, 10, false)
	lead := c.leader(natskit.StreamName(schema.Partition(run, 4)))
	hang := func(sig syscall.Signal) {
		for i, n := range c.nodes {
			if i != lead {
				_ = syscall.Kill(n.process(), sig)
			}
		}
	}
	hang(syscall.SIGSTOP)
	eventually(t, 10*time.Second, "two servers hang", func() bool { // a signal is on its way for a moment
		hung := 0
		for _, n := range c.nodes {
			if isStopped(n.process()) {
				hung++
			}
		}
		return hung == 2
	})
	for n := range 3 {
		code, text := d.append(run, fmt.Sprintf(drillText, n))
		if code != http.StatusServiceUnavailable || strings.Contains(text, "STORAGE-FULL") {
			t.Errorf("append %d: %d %s", n, code, text)
		}
	}
	eventually(t, 60*time.Second, "the check names it", func() bool {
		_, text := d.edge.ready()
		return strings.Contains(text, `"replicas":"`) && !strings.Contains(text, `"replicas":"ok"`)
	})
	hang(syscall.SIGCONT)
	d.began = time.Now()
	eventually(t, 60*time.Second, "events are taken", func() bool {
		code, _ := d.append(run, fmt.Sprintf(drillText, 0))
		return code == http.StatusOK
	})
	lost := len(d.told[run]) - len(events(t, d.run(run))[:10])
	if now := events(t, d.run(run)); !slices.Equal(now[:10], d.told[run]) {
		t.Errorf("other events are served than before: %q", now)
	}
	d.report("quorum of NATS lost", lost)
	c.whole([]string{"AGENT_0", "AGENT_1", "AGENT_2", "AGENT_3"})
}

// isStopped reports whether every thread of a process is stopped.
func isStopped(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err == nil && !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return len(tasks) > 0
}

// TestDrillDiskFull: the disk of one of three servers is full. Appends go on; checks, a metric and the doctor name the
// server until it was restarted with room, and nothing is lost.
func TestDrillDiskFull(t *testing.T) {
	dir, disk := t.TempDir(), testkit.SmallDisk(t, 192)
	if err := os.Symlink(disk, filepath.Join(dir, "2")); err != nil {
		t.Fatal(err)
	}
	d, c := newClusterDrill(t, dir)
	d.tell("run_1", 10, false)
	streams := []string{"AGENT_0", "AGENT_1", "AGENT_2", "AGENT_3"}
	for _, s := range streams {
		if c.leader(s) == 2 {
			c.lead(0, s)
		}
	}
	free := testkit.Fill(t, disk)
	big := fmt.Sprintf(`{"type":"text.delta","payload":{"text":%q}}`+"\n", strings.Repeat("x", 16<<10))
	n := 0
	named := func() bool {
		for i := range 8 { // in all partitions
			if code, _ := d.append(fmt.Sprint("run_big_", i), big); code == http.StatusOK {
				n++
			}
		}
		_, text := d.edge.ready()
		_, metrics := getText("http://" + d.per.admin + "/metrics")
		return strings.Contains(text, "the replica on n2") &&
			strings.Contains(metrics, `agentstream_stream_replica_current{peer="n2",stream="AGENT_0"} 0`)
	}
	eventually(t, 120*time.Second, "the server is named", named)
	d.doctor(1, "the replica on n2")
	free()
	time.Sleep(3 * time.Second)
	if _, text := d.edge.ready(); !strings.Contains(text, "the replica on n2") {
		t.Log("the server has come back without a restart")
	}
	d.began = time.Now()
	c.nodes[2].end(syscall.SIGTERM)
	c.nodes[2].start()
	c.whole(streams)
	eventually(t, 60*time.Second, "all replicas are current", func() bool {
		_, text := d.edge.ready()
		return strings.Contains(text, `"replicas":"ok"`)
	})
	stored := 0
	for i := range 8 {
		stored += len(served(t, "http://"+d.edge.addr, fmt.Sprint("run_big_", i)))
	}
	lost := max(0, n-stored) + d.served("run_1")
	d.report("disk of one server full", lost)
	if lost > 0 || n == 0 {
		t.Errorf("%d events were taken, %d are served", n, stored)
	}
	d.doctor(0)
}
