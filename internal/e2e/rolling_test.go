package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// rollingForm is how large a replacement is.
type rollingForm struct {
	watchers, edges, runs int
	every                 time.Duration // between two events of a run
	late                  time.Duration // of the balancer
	scale                 float64       // of the times of the manifest
}

// readRollingForm returns the form that AGENTSTREAM_ROLLING and AGENTSTREAM_ROLLING_EDGES name, or the short one.
func readRollingForm(t *testing.T) rollingForm {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("AGENTSTREAM_ROLLING"))
	if err != nil {
		return rollingForm{watchers: 300, edges: 2, runs: 10, every: 100 * time.Millisecond, late: 500 * time.Millisecond,
			scale: 0.15}
	}
	edges, err := strconv.Atoi(os.Getenv("AGENTSTREAM_ROLLING_EDGES"))
	if err != nil {
		edges = 3
	}
	return rollingForm{watchers: n, edges: edges, runs: 100, every: 2 * time.Second, late: 5 * time.Second, scale: 1}
}

// rolling is a deployment of edges, and who uses it.
type rolling struct {
	t        *testing.T
	form     rollingForm
	pod      manifestPod
	balancer *lateBalancer
	seen     rollingCounts
	acked    []*atomic.Int64 // events of each run, by its number
	slowest  atomic.Int64    // nanoseconds that an append took
	dir      string          // of the files that are mounted
}

// TestRollingReplacement replaces all edges one by one, as a Deployment without unavailable pods does, under watchers
// and publishers that come by a balancer which learns of endpoints late. The edges have the arguments and variables of
// the chart with its defaults; only addresses and paths are others, and in the short form the times are shorter. No
// connection and no request is refused, and every watcher has every event once and in order.
func TestRollingReplacement(t *testing.T) {
	beside(t)
	r := newRolling(t)
	raiseDescriptors(t, uint64(r.form.watchers+2000))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer r.balancer.all.Wait()
	defer cancel()
	edges := make([]*rollingEdge, r.form.edges)
	for i := range edges {
		edges[i] = r.startEdge(ctx)
	}
	r.balancer.knows(t, addrsOf(edges)...)
	publishing, enough := context.WithCancel(ctx)
	defer enough()
	published := r.publish(publishing)
	eventually(t, time.Minute, "every run has begun", func() bool {
		return !slices.ContainsFunc(r.acked, func(n *atomic.Int64) bool { return n.Load() == 0 })
	})
	watchers := r.watch(ctx)
	opened := r.seen.opened.Load()
	begun := time.Now()
	for i, old := range edges {
		edges[i] = r.startEdge(ctx) // one more than wanted, and then one less: maxUnavailable 0, maxSurge 1
		took := r.end(old)
		t.Logf("edge %d has ended after %s; %d streams opened again", i+1, took.Round(100*time.Millisecond),
			r.seen.opened.Load()-opened)
	}
	r.balancer.knows(t, addrsOf(edges)...)
	t.Logf("%d edges replaced in %s", len(edges), time.Since(begun).Round(100*time.Millisecond))
	enough()
	published.Wait()
	r.check(watchers, opened)
}

func newRolling(t *testing.T) *rolling {
	t.Helper()
	r := &rolling{t: t, form: readRollingForm(t), pod: podOf(t, readManifests(t, "minimal"), "agentstream-edge"),
		dir: t.TempDir()}
	for range r.form.runs {
		r.acked = append(r.acked, &atomic.Int64{})
	}
	r.balancer = &lateBalancer{until: map[string]time.Time{}, probe: r.pod.Containers[0].ReadinessProbe, late: r.form.late,
		unit: time.Duration(float64(time.Second) * r.form.scale)}
	url, dsn := startNATS(t, t.TempDir()).url(), testkit.Postgres(t)
	migrate(t, dsn, url)
	for name, text := range map[string]string{"nats_url_edge": url, "postgres_reader": dsn, "auth_token": edgeToken} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// rollingEdge is one pod.
type rollingEdge struct {
	*proc
	forget context.CancelFunc // ends its probes
}

func addrsOf(edges []*rollingEdge) (addrs []string) {
	for _, e := range edges {
		addrs = append(addrs, e.addr)
	}
	return addrs
}

// startEdge starts a pod as the manifest says and returns when it is ready.
func (r *rolling) startEdge(ctx context.Context) *rollingEdge {
	r.t.Helper()
	p := &proc{t: r.t, addr: testkit.FreeAddr(r.t), admin: testkit.FreeAddr(r.t), log: &lockedBuffer{}}
	health := testkit.FreeAddr(r.t)
	c := r.pod.Containers[0]
	for _, arg := range c.Args {
		flag, _, _ := strings.Cut(arg, "=")
		switch flag {
		case "--listen":
			arg = "--listen=" + p.addr
		case "--admin-listen":
			arg = "--admin-listen=" + p.admin
		case "--health-listen":
			arg = "--health-listen=" + health
		case "--drain-delay", "--drain":
			arg = fmt.Sprintf("%s=%v", flag, r.scaled(flag))
		}
		p.args = append(p.args, arg)
	}
	for _, e := range c.Env {
		p.env = append(p.env, e.Name+"="+strings.Replace(e.Value, "/run/secrets/agentstream", r.dir, 1))
	}
	r.t.Cleanup(p.kill)
	p.start()
	probed, forget := context.WithCancel(ctx)
	r.balancer.all.Go(func() { r.balancer.watch(probed, p.addr, health) })
	return &rollingEdge{proc: p, forget: forget}
}

// scaled is a time of the manifest's arguments, as the form wants it.
func (r *rolling) scaled(flag string) time.Duration {
	r.t.Helper()
	return time.Duration(float64(r.pod.Containers[0].argument(r.t, flag)) * r.form.scale)
}

// end ends a pod as the kubelet does: SIGTERM, and the grace of the manifest. It returns how long it took.
func (r *rolling) end(e *rollingEdge) time.Duration {
	r.t.Helper()
	begun := time.Now()
	r.balancer.leave(e.addr, r.scaled("--drain-delay"))
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-e.done:
	case <-time.After(time.Duration(r.pod.TerminationGracePeriodSeconds) * time.Second):
		r.t.Fatalf("the edge has not ended within its grace:\n%s", tail(e.log.String(), 2000))
	}
	e.forget()
	if code := e.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Errorf("the edge ends with %d:\n%s", code, tail(e.log.String(), 2000))
	}
	e.cmd = nil
	return time.Since(begun)
}

// watch opens the streams of all watchers and returns when each is open.
func (r *rolling) watch(ctx context.Context) []*rollingWatcher {
	r.t.Helper()
	watchers := make([]*rollingWatcher, r.form.watchers)
	slots := make(chan struct{}, 64) // streams that are being opened
	begun := time.Now()
	for i := range watchers {
		w := &rollingWatcher{run: rollingRun(i % r.form.runs), dial: r.balancer.dial, seen: &r.seen}
		watchers[i] = w
		slots <- struct{}{}
		var once sync.Once
		r.balancer.all.Go(func() { w.follow(ctx, func() { once.Do(func() { <-slots }) }) })
	}
	eventually(r.t, time.Minute, "all streams are open", func() bool { return len(slots) == 0 })
	r.t.Logf("%d streams open after %s", len(watchers), time.Since(begun).Round(time.Millisecond))
	return watchers
}

func rollingRun(i int) string { return fmt.Sprintf("rolling_%d", i) }

// publish appends one event after another to each run until ctx ends. An answer that is none is refused.
func (r *rolling) publish(ctx context.Context) *sync.WaitGroup {
	client := &http.Client{Transport: &http.Transport{DialContext: r.balancer.dial, MaxIdleConnsPerHost: 16}}
	r.t.Cleanup(client.CloseIdleConnections)
	const writers = 10
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			tick := time.NewTicker(r.form.every * writers / time.Duration(r.form.runs))
			defer tick.Stop()
			for at := w; ctx.Err() == nil; at += writers {
				if err := r.append(client, at%r.form.runs); err != nil && !errors.Is(err, errOverdue) {
					r.seen.note(&r.seen.refused, 1, "append: %v", err)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return &all
}

// append stores a run's next event, whose text is its number.
func (r *rolling) append(client *http.Client, run int) error {
	n := r.acked[run].Load() + 1
	body := fmt.Appendf(nil, `{"type":"text.delta","payload":{"text":"%d"}}`, n)
	url := "http://edges/v1/agent/runs/" + rollingRun(run) + "/events"
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+edgeToken)
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", fmt.Sprint(run, "-", n))
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var receipt struct {
		LastSeq int64 `json:"last_seq"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&receipt); err != nil || resp.StatusCode != http.StatusOK ||
		receipt.LastSeq != n {
		return fmt.Errorf("event %d of run %d: %s %+v %w", n, run, resp.Status, receipt, err)
	}
	r.acked[run].Store(n)
	keepLongest(&r.slowest, time.Since(begun))
	return nil
}

// check compares what every watcher has with what is acknowledged, and counts.
func (r *rolling) check(watchers []*rollingWatcher, opened int64) {
	t := r.t
	t.Helper()
	have := func(w *rollingWatcher, i int) bool { return w.last.Load() == r.acked[i%r.form.runs].Load() }
	eventually(t, time.Minute, "every watcher has everything that is acknowledged", func() bool {
		for i, w := range watchers {
			if !have(w, i) {
				return false
			}
		}
		return true
	})
	total := int64(0)
	for i := range r.acked {
		total += r.acked[i].Load()
	}
	s := &r.seen
	again := s.opened.Load() - opened
	t.Logf("%d watchers of %d runs by %d edges: %d events acknowledged, %d delivered; %d streams opened again, "+
		"at most %s after an end; the slowest append took %s",
		len(watchers), r.form.runs, r.form.edges, total, s.delivered.Load(), again,
		time.Duration(s.awayNanos.Load()).Round(time.Millisecond), time.Duration(r.slowest.Load()).Round(time.Millisecond))
	t.Logf("refused %d (connections %d), lost %d, doubled %d, wrong %d", s.refused.Load(), r.balancer.refused.Load(),
		s.lost.Load(), s.doubled.Load(), s.wrong.Load())
	if late := r.balancer.overdue.Load(); late > 0 {
		t.Logf("%d connections were tried to edges whose delay was over: the machine is too slow for these times", late)
		if long() {
			t.Error("the figures are not of what the chart says")
		}
	}
	if n := s.refused.Load() + r.balancer.refused.Load() + s.lost.Load() + s.doubled.Load() + s.wrong.Load(); n != 0 {
		t.Errorf("%d faults, the first: %v; of connections: %v", n, s.first.Load(), r.balancer.reason.Load())
	}
	if again < int64(len(watchers)) || total < int64(10*r.form.runs) {
		t.Errorf("%d streams opened again and %d events: nothing is shown", again, total)
	}
}
