package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// keyedLanes append at the same time, each to a run of its own.
const keyedLanes = 6

// keyedAppend is one request of a lane.
type keyedAppend struct {
	began, ended time.Time
	status       int // 0: no answer
	text         string
}

// keyedLoad appends with idempotency keys, as docs/clients.md tells everybody to, without ever trying again
// what was answered with 200.
type keyedLoad struct {
	t     testing.TB
	bases []string
	every time.Duration // of a lane, or as fast as it is answered
	stop  context.CancelFunc
	lanes sync.WaitGroup

	mu   sync.Mutex
	done [keyedLanes][]keyedAppend
	acks [keyedLanes][]schema.Seq // by append: where it was stored
}

func startKeyedLoad(t testing.TB, every time.Duration, bases ...string) *keyedLoad {
	l := &keyedLoad{t: t, every: every, bases: bases}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	for i := range keyedLanes {
		l.lanes.Go(func() { l.lane(ctx, i) })
	}
	t.Cleanup(func() { l.stop(); l.lanes.Wait() })
	return l
}

func (l *keyedLoad) run(lane int) string { return fmt.Sprintf("keyed_%d", lane) }

func (l *keyedLoad) lane(ctx context.Context, lane int) {
	client := &http.Client{Timeout: time.Minute, Transport: withToken{&http.Transport{}}}
	url := l.bases[lane%len(l.bases)] + "/v1/agent/runs/" + l.run(lane) + "/events"
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		for answered := false; !answered; { // what was begun is brought to its end
			a := keyedAppend{began: time.Now()}
			var at ack
			a.status, a.text = l.append(client, url, lane, n)
			a.ended = time.Now()
			if answered = a.status == http.StatusOK; answered && json.Unmarshal([]byte(a.text), &at) != nil {
				l.t.Errorf("lane %d, append %d: answer %s", lane, n, a.text)
			}
			l.mu.Lock()
			l.done[lane] = append(l.done[lane], a)
			if answered {
				l.acks[lane] = append(l.acks[lane], at.First)
			}
			l.mu.Unlock()
		}
		<-tick.C
	}
}

func (l *keyedLoad) append(client *http.Client, url string, lane, n int) (int, string) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewBufferString(keyedEvent(lane, n)))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Idempotency-Key", fmt.Sprintf("%d-%d", lane, n))
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

func keyedEvent(lane, n int) string {
	return fmt.Sprintf(`{"type":"text.delta","payload":{"text":"%d:%d"}}`, lane, n)
}

// span is a time in which something was done to the servers.
type span struct {
	from, to time.Time
	hopeless bool // nobody could store anything for longer than a request may take
}

// report says how the appends went that were under way in any of the spans, fails for each that was refused
// without need, and returns the longest.
func (l *keyedLoad) report(what string, spans ...span) (longest keyedAppend) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	refused := 0
	for i := range l.done {
		for _, a := range l.done[i] {
			at := slices.IndexFunc(spans, func(s span) bool { return !a.ended.Before(s.from) && !a.began.After(s.to) })
			if at < 0 {
				continue
			}
			took = append(took, a.ended.Sub(a.began))
			if a.ended.Sub(a.began) > longest.ended.Sub(longest.began) {
				longest = a
			}
			if a.status != http.StatusOK {
				if refused++; !spans[at].hopeless {
					l.t.Errorf("%s: lane %d after %s: %d %s", what, i, a.ended.Sub(a.began).Round(time.Millisecond), a.status, a.text)
				}
			}
		}
	}
	slices.Sort(took)
	l.t.Logf("%-12s %5d appends, %d refused, p50 %s, p99 %s, max %s", what, len(took), refused,
		quantile(took, 0.5).Round(100*time.Microsecond),
		quantile(took, 0.99).Round(time.Millisecond), quantile(took, 1).Round(time.Millisecond))
	return longest
}

// resumed waits until every lane has an answer behind a time, and says how long behind it the last of them came.
func (l *keyedLoad) resumed(behind time.Time) (latest time.Duration) {
	l.t.Helper()
	for i := range keyedLanes {
		var first time.Time
		eventually(l.t, 60*time.Second, "every lane goes on", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			at := slices.IndexFunc(l.done[i], func(a keyedAppend) bool { return a.ended.After(behind) })
			if at >= 0 {
				first = l.done[i][at].ended
			}
			return at >= 0
		})
		latest = max(latest, first.Sub(behind))
	}
	return latest
}

// finish ends the load and compares what was answered with what is stored: every append once, where it was
// said to be.
func (l *keyedLoad) finish() {
	l.t.Helper()
	l.stop()
	l.lanes.Wait()
	total := 0
	for i := range l.acks {
		lines := events(l.t, l.bases[0]+"/v1/agent/runs/"+l.run(i))
		if len(lines) != len(l.acks[i]) {
			l.t.Errorf("lane %d: %d appends acknowledged, %d events stored", i, len(l.acks[i]), len(lines))
		}
		for n, at := range l.acks[i] {
			if want := fmt.Sprintf(`"text":"%d:%d"`, i, n); int(at) > len(lines) || at != schema.Seq(n+1) ||
				!strings.Contains(lines[at-1], want) {
				l.t.Fatalf("lane %d: append %d is not at %d, where it was acknowledged", i, n, at)
			}
		}
		total += len(l.acks[i])
	}
	l.t.Logf("%d appends, each stored once where it was acknowledged", total)
}

// A NATS server of one node restarts under keyed appends: none is refused, and they go on when it is back.
func TestKeyedAppendsThroughARestart(t *testing.T) {
	beside(t)
	server := startNATS(t, t.TempDir())
	migrate(t, "", server.url())
	edge := newRole(t, "edge", server.url(), "")
	edge.start()
	edge.await(t)
	load := startKeyedLoad(t, time.Millisecond, "http://"+edge.addr)
	<-time.After(time.Second)
	for range min(kills(t, 2), 10) {
		from := time.Now()
		server.kill()
		<-time.After(2 * time.Second)
		server.start()
		server.await()
		back := time.Now()
		late := load.resumed(back)
		<-time.After(time.Second)
		load.report("restart", span{from: from, to: time.Now()})
		t.Logf("the last lane went on %s after the server was back", late.Round(time.Millisecond))
		if long() && late > 5*time.Second {
			t.Errorf("a lane went on %s after the server was back", late)
		}
	}
	load.finish()
}

// Nodes of a cluster are killed and rolled under keyed appends. None is refused. Without a leader nothing
// can be stored: after a roll one is there at once, after a kill when the servers have noticed it, which takes
// them 4 to 9 s, and appends go on as soon as it is.
func TestKeyedAppendsWhileNodesGo(t *testing.T) {
	beside(t)
	c := startNATSCluster(t, t.TempDir())
	migrate(t, "", c.url(), "--replicas", "3")
	streams := []string{"KV_AGENT_KEYS"}
	for p := range 4 {
		streams = append(streams, natskit.StreamName(p))
	}
	var bases []string
	for range 2 {
		edge := newRole(t, "edge", c.url(), "")
		edge.start()
		edge.await(t)
		bases = append(bases, "http://"+edge.addr)
	}
	c.whole(streams)
	load := startKeyedLoad(t, 110*time.Millisecond, bases...)
	calm, rounds := time.Second, kills(t, 2)
	if rounds > 2 { // the long form goes over all nodes
		calm, rounds = 5*time.Second, min(rounds, 30)
	}
	<-time.After(2 * calm)
	load.report("undisturbed", span{to: time.Now()})
	all := make(map[string][]span)
	for k := range rounds {
		what, by := "kill", syscall.SIGKILL
		if k%2 == 1 {
			what, by = "roll", syscall.SIGTERM
		}
		all[what] = append(all[what], disturbKeyed(t, c, load, streams, what, by, k/2%3, calm))
	}
	load.report("all kills", all["kill"]...)
	load.report("all rolls", all["roll"]...)
	load.finish()
}

// disturbKeyed ends a node by a signal, waits for leaders, and starts it again. The long form, which has the machine to
// itself, judges how soon appends go on once there are leaders; how soon those are there is the servers' own.
func disturbKeyed(t *testing.T, c *natsCluster, load *keyedLoad, streams []string, what string, by syscall.Signal,
	node int, calm time.Duration) span {
	t.Helper()
	c.lead(node, streams[0]) // the worst case: every append waits
	c.lead(node, streams[1])
	s := span{from: time.Now()}
	go c.nodes[node].end(by)
	led := c.led(streams, node)
	s.hopeless = led.Sub(s.from) > 14*time.Second
	load.resumed(led)
	<-time.After(calm)
	c.nodes[node].end(by)
	c.nodes[node].start()
	c.whole(streams)
	<-time.After(calm)
	s.to = time.Now()
	longest := load.report(fmt.Sprintf("%s n%d", what, node), s)
	late := longest.ended.Sub(led)
	t.Logf("leaders after %s, the longest append ended %s later", led.Sub(s.from).Round(time.Millisecond),
		late.Round(time.Millisecond))
	if long() && longest.began.Before(led) && late > 3*time.Second {
		t.Errorf("%s: an append ended %s after there were leaders", what, late)
	}
	return s
}
