package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// drain reads a connection up to a text, and returns how many bytes came.
func drain(t *testing.T, c net.Conn, end []byte) (all int) {
	buf, tail := make([]byte, 64<<10), []byte{}
	for {
		n, err := c.Read(buf)
		all += n
		if tail = append(tail, buf[:n]...); bytes.Contains(tail, end) {
			return all
		}
		if err != nil {
			t.Errorf("before %s: %v", end, err)
			return all
		}
		tail = tail[max(0, len(tail)-len(end)):]
	}
}

// nativeSocket opens a WebSocket of the native protocol in full detail.
func nativeSocket(t *testing.T, p *proc, run string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	u := url.URL{Path: "/v1/agent/runs/" + run + "/stream", RawQuery: "detail=full"}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", u.RequestURI(), p.addr)
	return c
}

// TestMetisCost: clients that wait have no goroutine. The long form, which has the machine to itself, compares what a
// delivery costs the server with the native protocol's in full detail, one run watched by 1,000.
func TestMetisCost(t *testing.T) {
	clients, pieces, rounds := 1000, 1500, 7
	if !metisLong() {
		beside(t)
		clients, pieces, rounds = 50, 100, 1
	}
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	m := metisAt(t, p)
	sessions := [2]string{m.create(), m.create()}
	conns := [2][]net.Conn{}
	attach := func() {
		for range clients {
			conns[0] = append(conns[0], m.watch(sessions[0], metisFull, "", true).conn)
		}
	}
	attach() // what the first take is no client's
	_ = p.heap()
	heap, before, busy := p.heap(), p.resident(), p.goroutines()
	attach()
	grown, _ := p.resident()-before, p.heap()
	t.Logf("%d clients that wait take %.1f KiB of heap each, and the process has grown by %.1f KiB each", clients,
		(p.heap()-heap)/1024/float64(clients), grown*1024/float64(clients))
	if n := p.goroutines() - busy; n > clients/2 {
		t.Errorf("%d clients that wait take %d goroutines", clients, n)
	}
	for _, c := range conns[0][clients:] {
		c.Close()
	}
	conns[0] = conns[0][:clients]
	for range clients {
		conns[1] = append(conns[1], nativeSocket(t, p, sessions[1]))
	}
	for _, session := range sessions {
		m.open(session)
	}
	var used [2][]float64
	for round := range rounds + 1 {
		for i, session := range sessions {
			end := fmt.Sprintf("end of round %d", round)
			began := cpuSeconds(p.cmd.Process.Pid, false)
			var reading sync.WaitGroup
			last := conns[i][clients-1]
			for _, c := range conns[i] {
				if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
					t.Fatal(err)
				}
				if c != last {
					reading.Go(func() { drain(t, c, []byte(end)) })
				}
			}
			// One client has a pack before the next one is said: how many of them leave in one write would be chance.
			for n := range pieces / 20 {
				text := fmt.Sprintf("%20d", n)
				m.appendText(session, 20, text)
				drain(t, last, []byte(text))
			}
			m.appendText(session, 1, end)
			drain(t, last, []byte(end))
			reading.Wait()
			if took := cpuSeconds(p.cmd.Process.Pid, false) - began; round > 0 { // the first warms up
				used[i] = append(used[i], took)
			}
		}
	}
	if !metisLong() {
		return
	}
	for i := range used {
		slices.Sort(used[i])
	}
	per := func(i int) float64 { return used[i][len(used[i])/2] / float64(clients*(pieces+1)) * 1e6 }
	t.Logf("a delivery takes %.2f µs of CPU, the native one %.2f: ratio %.2f", per(0), per(1), per(0)/per(1))
	if per(0) > 1.3*per(1) {
		t.Errorf("a delivery costs more than 1.3 times the native one")
	}
}

// heap is what is in use behind a collection, in bytes.
func (p *proc) heap() float64 {
	n, err := strconv.ParseFloat(p.profile("heap?gc=1&debug=1", "# HeapAlloc = "), 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *proc) goroutines() int {
	n, err := strconv.Atoi(p.profile("goroutine?debug=1", "goroutine profile: total "))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// profile returns the rest of the line that begins so.
func (p *proc) profile(name, begins string) string {
	resp, err := http.Get("http://" + p.admin + "/debug/pprof/" + name)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), begins)
	rest, _, _ = strings.Cut(rest, "\n")
	return rest
}

// TestMetisMillion prints how long it takes from subscribe to the first frame of a run of a million events. Long form
// only.
func TestMetisMillion(t *testing.T) {
	beside(t)
	events := 20_000
	if metisLong() {
		events = 1_000_000
	}
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	m := metisAt(t, p)
	session := m.create()
	m.open(session)
	for range events / 10_000 {
		m.appendText(session, 10_000, "x")
	}
	first := func(what string) {
		c := m.attach(session)
		began := time.Now()
		c.subscribe(metisFull, "", true)
		t.Logf("%d events: the snapshot, %s, is there after %v", events, what, time.Since(began).Round(time.Millisecond))
		since := c.fold.Last
		m.appendText(session, 1000, "y")
		for range 1000 {
			c.until("text.delta")
		}
		c = m.attach(session)
		began = time.Now()
		if code := c.subscribe(metisFull, since, false); code != "" || c.ack.Replay != 1000 {
			t.Errorf("%q %+v", code, c.ack)
		}
		if _, err := c.event(); err != nil {
			t.Error(err)
		}
		t.Logf("%d events: the first frame behind 1,000 missed ones, %s, after %v", events, what,
			time.Since(began).Round(time.Millisecond))
	}
	first("warm")
	p.stop()
	p.start()
	first("cold")
}
