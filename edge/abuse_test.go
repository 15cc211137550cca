package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func byPath(in dialect.Input) (dialect.Request, error) {
	return dialect.Request{Run: in.Path["run"]}, nil
}

func TestPanics(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Protocols = append(c.Protocols, edgetest.Speak(
			edgetest.OddDialect{Pattern: "GET /open/{run}",
				OnOpen: func(dialect.Input) (dialect.Request, error) { panic("secret state") }},
			edgetest.OddDialect{Pattern: "GET /abort/{run}",
				OnOpen: func(dialect.Input) (dialect.Request, error) { panic(http.ErrAbortHandler) }},
			edgetest.OddDialect{Pattern: "GET /project/{run}", OnOpen: byPath,
				OnProject: func(_ *dialect.Frames, r schema.Record) error {
					if r.Seq == 2 {
						panic("in mid-stream")
					}
					return nil
				}},
			edgetest.OddDialect{Pattern: "GET /error/{run}", OnOpen: byPath, Mode: dialect.ModeB,
				OnProject: func(out *dialect.Frames, r schema.Record) error {
					if r.Seq == 2 {
						return errors.New("cannot be told")
					}
					out.Add(dialect.Frame{Data: out.Number(int64(r.Seq))})
					return nil
				}})...)
	})
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine+"\n"+edgetest.GoodLine)
	if a := h.Do("GET", "/open/run", ""); a.Status != 500 || a.Body != `{"odd":"INTERNAL"}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if n := strings.Count(h.Logs.String(), "secret state"); n != 1 {
		t.Errorf("the panic is logged %d times", n)
	}
	if resp, err := http.DefaultClient.Do(h.Request("GET", "/abort/run", "")); err == nil {
		resp.Body.Close()
		t.Errorf("an abort was answered %d", resp.StatusCode)
	}
	for _, path := range []string{"/project/run", "/error/run"} {
		resp, err := http.DefaultClient.Do(h.Request("GET", path, ""))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || strings.Contains(string(b), "mid-stream") {
			t.Errorf("%s ended cleanly: %q", path, b)
		}
	}
	// The dialect's own words for other refusals, too; and the run is checked whatever Open says.
	if a := h.Do("GET", "/project/none", ""); a.Status != 404 || a.Body != `{"odd":"NOT-FOUND"}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := h.Do("GET", "/project/a%2Fb", ""); a.Status != 400 || a.Body != `{"odd":"BAD-ID"}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := h.Do("GET", "/healthz", ""); a.Status != 200 {
		t.Errorf("the server is gone: %d", a.Status)
	}
}

// TestModeDStaysOpen has a session's stream: the end of the run is not its end, and there is no 204.
func TestModeDStaysOpen(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Protocols = append(c.Protocols, edgetest.Speak(edgetest.OddDialect{Pattern: "GET /d/{run}", OnOpen: byPath,
			Mode: dialect.ModeD, OnProject: func(out *dialect.Frames, r schema.Record) error {
				out.Add(dialect.Frame{Data: out.Number(int64(r.Seq))})
				return nil
			}})...)
	})
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"done"}}`)
	r := h.Watch(http.DefaultClient, "/d/run")
	r.Expect("data: 1\n\n")
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"command.message","payload":{"content":"go on"}}`)
	r.Expect("data: 2\n\n")
}

// TestNeverReadingClient has one client that never reads and one that does, on the same run. The
// first is cut after the write time-out and costs next to nothing meanwhile; the second sees it all.
func TestNeverReadingClient(t *testing.T) {
	var mu sync.Mutex
	closed := map[dialect.Reason]int{}
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.WriteTimeout = 300 * time.Millisecond
		c.Hooks.StreamClosed = func(_ string, _ dialect.Transport, r dialect.Reason) { mu.Lock(); closed[r]++; mu.Unlock() }
	})
	count := func(r dialect.Reason) int { mu.Lock(); defer mu.Unlock(); return closed[r] }
	const run, events, idle = "/v1/agent/runs/run", 200, 20
	text := strings.Repeat("x", 100<<10) // 20 MB in all: more than any socket buffer takes
	h.Do("POST", run+"/events", edgetest.GoodLine)
	for range idle {
		c, err := net.Dial("tcp", h.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET "+run+"/stream?detail=full HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	r := h.Watch(http.DefaultClient, run+"/stream?detail=full") // at once, not ten times a second
	if got, err := r.Next(); err != nil || !strings.HasSuffix(got, "id: 1\n\n") {
		t.Fatalf("%q %v", got, err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	for i := range events {
		if a := h.Do("POST", run+"/events", `{"type":"text.delta","payload":{"text":"`+text+`"}}`); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if got, err := r.Next(); err != nil || !strings.HasSuffix(got, fmt.Sprintf("\nid: %d\n\n", i+2)) {
			t.Fatalf("the reading client at %d: %d bytes, %v", i+2, len(got), err)
		}
		if i%50 == 49 {
			runtime.GC()
			runtime.ReadMemStats(&after)
			peak = max(peak, after.HeapAlloc)
		}
	}
	edgetest.Eventually(t, "all clients that do not read are cut",
		func() bool { return count(dialect.ReasonSlowClient) == idle })
	if count(dialect.ReasonClientGone) != 0 {
		t.Errorf("ends: %v", closed)
	}
	// The log in memory itself holds 20 MB. What is left, over 20 silent clients, is theirs.
	log := uint64(events * len(text))
	if extra := int64(peak) - int64(before.HeapAlloc) - int64(log); extra > 20<<20 {
		t.Errorf("%d bytes beyond the log, %d per silent client", extra, extra/idle)
	}
	h.Do("POST", run+"/events", `{"type":"run.lifecycle","payload":{"state":"done"}}`)
	if rest, err := io.ReadAll(r.B); err != nil || !strings.HasSuffix(string(rest), fmt.Sprintf("id: %d\n\n", events+2)) {
		t.Errorf("the reading client's end: %d bytes, %v", len(rest), err)
	}
}

// TestDrain stops a server under open streams: no invented terminal, a broken body, other requests
// finished, everything within the limit.
func TestDrain(t *testing.T) {
	hold := make(chan struct{})
	var reasons sync.Map
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.DrainWindow, c.DrainLimit = 300*time.Millisecond, 10*time.Second
		c.Hooks.StreamClosed = func(_ string, _ dialect.Transport, r dialect.Reason) { reasons.Store(r, true) }
		c.Checks = []edge.Check{{Name: "slow", Run: func(context.Context) error { <-hold; return nil }}}
	})
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"running"}}`)
	c2 := edgetest.H2C()
	defer c2.CloseIdleConnections()
	var streams []*edgetest.EventReader
	for i := range 12 {
		client := http.DefaultClient
		if i%2 == 1 {
			client = c2
		}
		r := h.Watch(client, "/v1/agent/runs/run/stream?detail=full")
		if got, err := r.Next(); err != nil || !strings.HasSuffix(got, "id: 1\n\n") {
			t.Fatalf("%q %v", got, err)
		}
		streams = append(streams, r)
	}
	ordinary := make(chan edgetest.Reply, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		ordinary <- h.Do("GET", "/readyz", "")
	}()
	<-begun
	edgetest.Eventually(t, "the ordinary request is under way",
		func() bool { return strings.Count(dump(), ".(*Server).ready") > 0 })

	stopping := make(chan error, 1)
	start := time.Now()
	go func() { stopping <- h.Stop() }()
	times := make(chan time.Duration, len(streams))
	for _, r := range streams {
		go func() {
			rest, err := io.ReadAll(r.B)
			if err == nil || len(rest) > 0 {
				t.Errorf("the body ends with %q, %v: not a cut", rest, err)
			}
			times <- time.Since(start)
		}()
	}
	var first, last time.Duration
	for i := range streams {
		d := <-times
		if i == 0 {
			first = d
		}
		last = max(last, d)
	}
	if last-first < 100*time.Millisecond {
		t.Errorf("streams ended within %v of each other", last-first)
	}
	if c, err := net.Dial("tcp", h.Addr); err == nil {
		c.Close()
		t.Error("still accepting")
	}
	close(hold)
	if a := <-ordinary; a.Status != 503 || !strings.Contains(a.Body, `"draining":true`) {
		t.Errorf("the ordinary request: %d %s", a.Status, a.Body)
	}
	if err := <-stopping; err != nil {
		t.Errorf("run: %v", err)
	}
	if _, ok := reasons.Load(dialect.ReasonShutdown); !ok {
		t.Error("the reason is not shutdown")
	}
	reasons.Range(func(k, _ any) bool {
		if k != dialect.ReasonShutdown {
			t.Errorf("a stream ended by %v", k)
		}
		return true
	})
	if h.Last("run") != 1 {
		t.Errorf("draining wrote to the run: %d", h.Last("run"))
	}
}

// TestDrainDelay: between the signal and the drain the node is not ready and serves as before: new connections, new
// streams, writes, and the streams that are open.
func TestDrainDelay(t *testing.T) {
	const delay = 2 * time.Second
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.DrainDelay, c.DrainWindow = delay, time.Millisecond })
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"running"}}`)
	open := h.Watch(http.DefaultClient, "/v1/agent/runs/run/stream?detail=full")
	if _, err := open.Next(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop() }()
	edgetest.Eventually(t, "the node is not ready", func() bool {
		a := h.Do("GET", "/readyz", "")
		return a.Status == 503 && strings.Contains(a.Body, `"draining":true`)
	})
	fresh := &http.Client{Transport: &http.Transport{}} // a balancer that has not noticed opens a connection
	defer fresh.CloseIdleConnections()
	res, err := fresh.Post("http://"+h.Addr+"/v1/agent/runs/run/events", "application/json",
		strings.NewReader(`{"type":"text.delta","payload":{"text":"late"}}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Errorf("a write in the delay: %s, the connection closes: %t", res.Status, res.Close)
	}
	late := h.Watch(fresh, "/v1/agent/runs/run/stream?detail=full")
	if got, err := late.Next(); err != nil || !strings.HasSuffix(got, "id: 1\n\n") {
		t.Errorf("a stream that begins in the delay: %q %v", got, err)
	}
	if got, err := open.Next(); err != nil || !strings.Contains(got, "late") {
		t.Errorf("a stream that was open: %q %v", got, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took < delay {
		t.Errorf("the drain began after %v", took)
	}
	if c, err := net.Dial("tcp", h.Addr); err == nil {
		c.Close()
		t.Error("still accepting")
	}
}

// dump returns the stacks of all goroutines.
func dump() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

// TestDrainLimit has a client that blocks its stream for longer than Run may wait.
func TestDrainLimit(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.WriteTimeout, c.DrainLimit = time.Minute, 300*time.Millisecond
		c.DrainWindow = time.Millisecond
	})
	for range 60 {
		h.Do("POST", "/v1/agent/runs/fat/events",
			`{"type":"text.delta","payload":{"text":"`+strings.Repeat("x", 400<<10)+`"}}`)
	}
	c, err := net.Dial("tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /v1/agent/runs/fat/stream?detail=full HTTP/1.1\r\nHost: x\r\n\r\n")
	edgetest.Eventually(t, "the stream hangs in a write", func() bool {
		return strings.Contains(dump(), ".(*Direct).write") && strings.Contains(dump(), "waitWrite")
	})
	h.Hung = true
	if err := h.Stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: %v", err)
	}
}

func TestSlowHeadersAreCut(t *testing.T) {
	t.Parallel() // it waits
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.HeaderTimeout, c.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond })
	for name, text := range map[string]string{
		"silent":       "",
		"half a line":  "GET /healthz HT",
		"no blank":     "GET /healthz HTTP/1.1\r\nHost: x\r\nX: y\r\n",
		"idle behind":  "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"h2c preface":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"half preface": "PRI * HTTP/2.0\r\n\r\nSM",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", h.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, text)
			c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it stays open: %v", err)
			}
		})
	}
}

// TestDamagedLog has a stream that meets what is not a line of the log: it is broken off, never a
// quiet stall, never a clean end, and never passed on.
func TestDamagedLog(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Do("POST", "/v1/agent/runs/open/events", edgetest.GoodLine)
	r := h.Watch(http.DefaultClient, "/v1/agent/runs/open/stream?detail=full")
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	key := schema.RunKey{Tenant: "acme", Run: "open"}
	head, err := h.Log.Log.Head(context.Background(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	broken := schematest.Packs(key, schematest.ByName("plain"), 1)[1] // seq 2
	broken.Body = []byte("{\"id\":\"not a line of the log\"}\n")
	if _, err := h.Log.Log.Append(context.Background(), &broken, head.Stored); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r.B)
	if err == nil || len(rest) > 0 {
		t.Errorf("the body ends with %q, %v", rest, err)
	}
	edgetest.Eventually(t, "the reason is logged",
		func() bool { return strings.Contains(h.Logs.String(), `"reason":"internal"`) })
}

// TestLogAwayUnderAStream has an edge that is cut off from the log (faults 9): its readers get
// keep-alives and then an end that no client takes for success, not a stall for ever.
func TestLogAwayUnderAStream(t *testing.T) {
	for name, detail := range map[string]string{"full": "?detail=full", "joined": ""} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { logAway(t, detail) }) })
	}
}

func logAway(t *testing.T, detail string) {
	ln := edgetest.NewPipes()
	h := edgetest.NewHouseOn(t, ln, ln.Client())
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	r := h.Watch(h.Client, "/v1/agent/runs/run/stream"+detail)
	if got, err := r.Next(); err != nil || !strings.HasSuffix(got, "id: 1\n\n") {
		t.Fatalf("%q %v", got, err)
	}
	h.Log.Down.Store(true)
	begun, alive := time.Now(), 0
	for {
		got, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) || got != "" {
				t.Errorf("the end looks clean: %q %v", got, err)
			}
			break
		}
		if got != ": keepalive\n\n" {
			t.Fatalf("%q", got)
		}
		alive++
	}
	if d := time.Since(begun); d < 15*time.Second || d > 90*time.Second || alive == 0 {
		t.Errorf("ended after %v and %d keep-alives", d, alive)
	}
	synctest.Wait()
	if !strings.Contains(h.Logs.String(), `"reason":"unavailable"`) {
		t.Errorf("log: %s", h.Logs)
	}
	h.Log.Down.Store(false)
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"done"}}`)
	if got := h.Do("GET", "/v1/agent/runs/run/stream"+detail, "", "Last-Event-ID",
		"1").Events(t); !strings.HasSuffix(got, "id: 2\n\n") {
		t.Errorf("after healing: %q", got)
	}
}

// TestSecretsAreNotLogged sends credentials and hostile text in every place that a log might take up.
func TestSecretsAreNotLogged(t *testing.T) {
	h := edgetest.NewHouse(t)
	const secret = "s3cr3t"
	forged := "\n{\"level\":\"ERROR\",\"msg\":\"forged\"}"
	h.Do("POST", "/v1/agent/runs/run/events?token="+secret, `{"type":"custom.`+secret+`","payload":{"k":"`+secret+`"}}`,
		"Authorization", "Bearer "+secret, "Cookie", "session="+secret, "Idempotency-Key", secret, "X-Api-Key", secret)
	h.Do("GET", "/v1/agent/runs/"+url.PathEscape(secret+forged)+"/stream", "", "Authorization", "Bearer "+secret)
	h.Do("GET", "/"+secret+url.PathEscape(forged), "")
	h.Do("POST", "/v1/agent/runs/run/events", secret, "User-Agent", secret, "Referer", secret)
	h.Raw("BREW" + " /v1/agent/runs/" + secret + "/x HTTP/1.1\r\nHost: " + secret + "\r\nConnection: close\r\n\r\n")
	if logs := h.Logs.String(); strings.Contains(logs, secret) || strings.Contains(logs, "forged") ||
		strings.Count(logs, "\n") != 5 {
		t.Errorf("log: %s", logs)
	}
}

// TestVanishedClients opens and drops many streams; goleak at the end of the package and the count of
// open streams here show that nothing is left of them.
func TestVanishedClients(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.MaxStreams = 50 })
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	for range 4 {
		var conns []net.Conn
		for range 50 {
			c, err := net.Dial("tcp", h.Addr)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "GET /v1/agent/runs/run/stream?detail=full HTTP/1.1\r\nHost: x\r\n\r\n")
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
				t.Fatalf("%q %v", line, err)
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			c.Close()
		}
		edgetest.Eventually(t, "places are free",
			func() bool { return h.Do("HEAD", "/v1/agent/runs/run/stream?detail=full", "").Status == 200 })
		edgetest.Eventually(t, "streams are gone", func() bool { return !strings.Contains(dump(), ".(*Server).deliver") })
		h.Vacant() // so that the next fifty find all places
	}
}
