package e2e_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// story publishes a run, event after event, over a proxy that knows the edges.
type story struct {
	url  string
	last atomic.Int64 // events that are stored
}

// tell stores lines, each of them once, however often an edge does not answer.
func (a *story) tell(ctx context.Context, lines ...string) error {
	n := a.last.Load()
	_, _, err := post(ctx, http.DefaultClient, a.url, fmt.Sprintf("%s after %d", a.url, n),
		[]byte(strings.Join(lines, "\n")))
	if err == nil {
		a.last.Add(int64(len(lines)))
	}
	return err
}

// begin is what a run begins with that answers a message.
func (a *story) begin(ctx context.Context) error {
	return a.tell(ctx, `{"type":"session.created","payload":{}}`,
		`{"type":"command.message","payload":{"content":"tell me","message_id":"m1"}}`,
		`{"type":"turn.start","payload":{"turn_id":"t"}}`,
		`{"type":"message.start","payload":{"message_id":"a1","role":"assistant","model":"m"}}`)
}

// speak stores pieces of a text until enough is closed, and then the end of the response.
func (a *story) speak(ctx context.Context, enough chan struct{}) error {
	for n := 0; ; n++ {
		select {
		case <-enough:
			return a.tell(ctx, `{"type":"text.delta","payload":{"text":"and these are the last words"}}`,
				`{"type":"message.end","payload":{"message_id":"a1","stop_reason":"tool_use"}}`,
				`{"type":"tool.start","payload":{"call_id":"c1","tool":"look","input":{"at":"it"}}}`,
				`{"type":"tool.end","payload":{"call_id":"c1","ok":true,"output":{"seen":true}}}`,
				`{"type":"turn.end","payload":{"turn_id":"t","stop_reason":"end_turn"}}`,
				`{"type":"run.lifecycle","payload":{"state":"done"}}`)
		case <-time.After(20 * time.Millisecond):
		}
		if err := a.tell(ctx, fmt.Sprintf(`{"type":"text.delta","payload":{"text":"%d %s "}}`, n,
			"é😀 and so on")); err != nil {
			return err
		}
	}
}

// TestFrontsOverFaults: the clients of frontends, unmodified, watch one run whose connections are cut again and again,
// over two edges of which one is killed, the other is drained, and both are without NATS for two seconds. Each has in
// the end what one has that asks once.
func TestFrontsOverFaults(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	nats := startNATS(t, t.TempDir())
	w := edgesOn(t, nats.url(), "http://127.0.0.1:1")
	addrs := []string{w.edges[0].addr, w.edges[1].addr}
	whole := newCutter(t, 2, math.MaxInt32, "", addrs...)
	const clients = 6
	var proxies []*cutter // one for each client
	var urls []string
	for range clients {
		proxies = append(proxies, newCutter(t, 1, math.MaxInt32, "", addrs...))
		urls = append(urls, proxies[len(proxies)-1].url(""))
	}
	a := &story{url: whole.url("/v1/agent/runs/run_faults/events")}
	if err := a.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	enough, results := make(chan struct{}), make(chan error, 2)
	go func() { results <- a.speak(t.Context(), enough) }()
	go func() {
		results <- scriptErr(t.Context(), node, "fronts-faults.mjs", "PROXIES="+strings.Join(urls, " "),
			"OTHER="+w.edges[1].url(""), "TOKEN="+edgeToken, "RUN=run_faults")
	}()
	more := func(what string, asked []int64) { // asked: connections that each client has asked for before
		from := a.last.Load()
		eventually(t, 60*time.Second, what, func() bool {
			if len(results) > 0 {
				t.Fatalf("%s: %v", what, <-results)
			}
			for i, n := range asked {
				if proxies[i].conns.Load() <= n {
					return false
				}
			}
			return a.last.Load() > from+10
		})
	}
	more("the clients are there", make([]int64, clients))
	for range 3 {
		asked := make([]int64, clients)
		for i, p := range proxies {
			asked[i] = p.conns.Load()
			p.drop()
		}
		more("they come back", asked)
	}
	w.edges[0].kill()
	more("one edge serves", nil)
	w.edges[0].start()
	if code := w.edges[1].stop(); code != 0 {
		t.Errorf("the drained edge ends with %d", code)
	}
	more("the other edge serves", nil)
	w.edges[1].start()
	nats.kill()
	time.Sleep(2 * time.Second)
	nats.start()
	more("it goes on with NATS", nil)
	close(enough)
	for range 2 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}

// TestFrontendsPage: each program of docs/frontends.md, as it stands there, shows the last words of a run.
func TestFrontendsPage(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	dev := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	dev.start()
	a := &story{url: dev.url("/v1/agent/runs/run_page/events")}
	if err := a.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	enough := make(chan struct{})
	close(enough)
	if err := a.speak(t.Context(), enough); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "frontends.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?ms)^## ([^\n]+)$.*?^```js\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(programs) != 6 {
		t.Fatalf("%d programs", len(programs))
	}
	// CopilotKit's client asks for nothing outside of a browser.
	const given = "const { BASE: base, TOKEN: token, RUN: run } = process.env;\nglobalThis.window = { location: new URL(base) };\n"
	for _, p := range programs {
		t.Run(p[1], func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "--eval", given+p[2])
			cmd.Dir, cmd.WaitDelay = jsDir, time.Second
			cmd.Env = append(os.Environ(), "BASE="+dev.url(""), "TOKEN="+edgeToken, "RUN=run_page")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "the last words") {
				t.Errorf("%v\n%s", err, tail(string(out), 2000))
			}
		})
	}
}
