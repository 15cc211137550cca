package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// threadsSix are filters of one page: all of them show what models say, and each something else as well.
var threadsSix = []string{
	`{"channels":["messages"]}`, `{"channels":["messages","lifecycle"]}`,
	`{"channels":["messages","tools"],"namespaces":[[]]}`,
	`{"channels":["messages","values"]}`, `{"channels":["messages","custom"],"namespaces":[[]],"depth":2}`,
	`{"channels":["messages","tasks","checkpoints"]}`,
}

// threadsParts are filters of a page that show a part each.
var threadsParts = []string{
	`{"channels":["messages"]}`, `{"channels":["lifecycle","input"]}`,
	`{"channels":["tools","messages"],"namespaces":[["tools"]]}`,
	`{"channels":["values","checkpoints"]}`, `{"channels":["updates","tasks"]}`, `{"channels":["custom"]}`,
}

// sseConn opens a stream of server-sent events on a connection of its own.
func sseConn(t *testing.T, p *proc, method, path, body string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, p.addr, edgeToken, len(body), body)
	return c
}

// threadWatchers opens streams of a thread, one filter after the other.
func threadWatchers(t *testing.T, p *proc, run string, n int, filters ...string) (all []net.Conn) {
	t.Helper()
	for i := range n {
		all = append(all, sseConn(t, p, "POST", "/threads/"+run+"/stream/events", filters[i%len(filters)]))
	}
	return all
}

// TestThreadsCost: what a delta costs the server that 1,000 clients watch as a thread, under one filter and under six,
// beside the native stream in full detail. The long form has the machine to itself.
func TestThreadsCost(t *testing.T) {
	clients, deltas, rounds := 1000, 60, 7
	if !threadsLong() {
		beside(t)
		clients, deltas, rounds = 60, 10, 1
	}
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	m := metisAt(t, p)
	runs := []string{"native", "one", "six"}
	conns := make([][]net.Conn, len(runs))
	for i, run := range runs {
		m.open(run)
		switch run {
		case "native":
			for range clients {
				conns[i] = append(conns[i], sseConn(t, p, "GET", "/v1/agent/runs/native/stream?detail=full", ""))
			}
		case "one":
			conns[i] = threadWatchers(t, p, run, clients, threadsSix[:1]...)
		case "six":
			conns[i] = threadWatchers(t, p, run, clients, threadsSix...)
		}
	}
	// send writes a delta, and returns when everybody has it: each client is written to once.
	send := func(i int, end string) {
		var reading sync.WaitGroup
		for _, c := range conns[i] {
			reading.Go(func() { drain(t, c, []byte(end)) })
		}
		m.append(p.url("/v1/agent/runs/"+runs[i]+"/events"),
			`{"type":"text.delta","payload":{"text":"`+end+` behind the others","index":0}}`+"\n")
		reading.Wait()
	}
	used := make([][]float64, len(runs))
	for round := range rounds + 1 {
		for i := range runs {
			for _, c := range conns[i] {
				if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
			began := cpuSeconds(p.cmd.Process.Pid, false)
			for n := range deltas {
				send(i, fmt.Sprintf("%d.%d.", round, n))
			}
			if took := cpuSeconds(p.cmd.Process.Pid, false) - began; round > 0 { // the first warms up
				used[i] = append(used[i], took)
			}
		}
	}
	if !threadsLong() {
		return
	}
	per := func(i int) float64 { // what others do on the machine only adds to it
		return slices.Min(used[i]) / float64(clients*deltas) * 1e6
	}
	native, one, six := per(0), per(1), per(2)
	t.Logf("a delivery takes %.2f µs of CPU natively, %.2f to watchers of one filter (%.2f times), %.2f to those of six (%.2f times)", native, one, one/native, six, six/native)
	if one > 1.2*native || six > 1.5*native {
		t.Errorf("a delivery costs more than 1.2 or 1.5 times the native one")
	}
}

// TestThreadsReplayCost: six filters over a long thread, which show a part each, cost at most three times the CPU of
// one full replay.
func TestThreadsReplayCost(t *testing.T) {
	events, rounds := 100_000, 5
	if !threadsLong() {
		beside(t)
		events, rounds = 2_000, 1
	}
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	m := metisAt(t, p)
	m.open("long")
	for range events / 2000 {
		m.appendText("long", 1900, "a token of a few letters ")
		for range 10 {
			postLog(t, p.url("/v1/agent/runs/long/events"), strings.Repeat(`task.start {"task_id":"k","name":"n"}
				custom.note {"x":1}
				state.update {"node":"n","values":{"n":2}}
				progress {"done":1}
				task.end {"task_id":"k","result":{"n":2}}
			`, 2))
		}
	}
	full := `{"channels":["lifecycle","messages","tools","input","values","updates","checkpoints","tasks","custom"]}`
	replay := func(filters ...string) float64 {
		began := cpuSeconds(p.cmd.Process.Pid, false)
		var reading sync.WaitGroup
		for _, f := range filters {
			c := sseConn(t, p, "POST", "/threads/long/stream/events", f)
			if err := c.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			reading.Go(func() {
				if n := drain(t, c, []byte(": replayed ")); f == full && n < events*300 {
					t.Errorf("%d events in %d bytes", events, n)
				}
				c.Close()
			})
		}
		reading.Wait()
		return cpuSeconds(p.cmd.Process.Pid, false) - began
	}
	replay(full)
	var one, six []float64
	for range rounds {
		one, six = append(one, replay(full)), append(six, replay(threadsParts...))
	}
	full1, all6 := slices.Min(one), slices.Min(six)
	if !threadsLong() {
		return
	}
	t.Logf("%d events: one full replay takes %.2f s of CPU, six filters %.2f: ratio %.2f", events, full1, all6, all6/full1)
	if all6 > 3*full1 {
		t.Errorf("six filters cost more than three times one replay")
	}
}

// TestThreadsFirst prints how long it takes, in the middle, from the command that begins a thread to its answer, and to
// the event that says that its run is running, which the agent has brought about.
func TestThreadsFirst(t *testing.T) {
	rounds := 100
	if !threadsLong() {
		beside(t)
		rounds = 3
	}
	p := newProc(t, "dev", "--data", t.TempDir())
	p.start()
	var answered, running []time.Duration
	for i := range rounds {
		run := fmt.Sprintf("first_%d", i)
		c := sseConn(t, p, "POST", "/threads/"+run+"/stream/events", `{"channels":["lifecycle"]}`)
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		drain(t, c, []byte(": replayed 0"))
		began := time.Now()
		resp, err := http.Post(p.url("/threads/"+run+"/commands"), "application/json",
			strings.NewReader(`{"id":1,"method":"run.start","params":{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"Hi."}]}}}`))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"success"`)) {
			t.Fatalf("%d %s %v", resp.StatusCode, answer, err)
		}
		answered = append(answered, time.Since(began))
		drain(t, c, []byte(`"event":"running"`))
		running = append(running, time.Since(began))
		c.Close()
	}
	p50 := func(d []time.Duration) time.Duration {
		slices.Sort(d)
		return d[len(d)/2].Round(100 * time.Microsecond)
	}
	t.Logf("run.start is answered after %v, its run is running after %v (p50 of %d)", p50(answered), p50(running), rounds)
}
