package natsjs_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/provider"
	"agentstream/internal/cputime"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// BenchmarkAppend is one append of deltas to one run by way of an embedded server, whose own work is in
// the time but hardly in the allocations.
func BenchmarkAppend(b *testing.B) {
	for _, events := range []int{1, 64} {
		b.Run(strconv.Itoa(events), func(b *testing.B) {
			k := testkit.NATS(b)
			l, err := natsjs.Open(b.Context(), k.Conn)
			if err != nil {
				b.Fatal(err)
			}
			app, err := producers.NewAppender(producers.AppenderConfig{Log: l})
			if err != nil {
				b.Fatal(err)
			}
			batch := make([]schema.Event, events)
			for i := range batch {
				batch[i] = schema.Event{Type: schema.TypeTextDelta,
					Payload: []byte(`{"text":"` + strings.Repeat("token ", 30) + `"}`)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := app.Append(b.Context(), key, batch, producers.AppendOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkAppendOf is one append of a delta to a run, to a child of it in the root's log, to a child by its own id, of
// the first event of a run, and of a spawn, in turn on one log: what ids of children cost, and whom.
func BenchmarkAppendOf(b *testing.B) {
	k := testkit.NATS(b)
	l, err := natsjs.Open(b.Context(), k.Conn)
	if err != nil {
		b.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	put := func(b *testing.B, run string, e schema.Event) {
		if _, err := app.Append(b.Context(), schema.RunKey{Tenant: "acme", Run: run}, []schema.Event{e},
			producers.AppendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	spawn := func(child string) schema.Event {
		return schema.Event{Type: schema.TypeChildSpawn, Payload: fmt.Appendf(nil, `{"child_id":%q}`, child)}
	}
	put(b, "root", spawn("kid"))
	for _, of := range []struct {
		name string
		put  func(b *testing.B)
	}{
		{"run", func(b *testing.B) { put(b, "root", text("", "token")) }},
		{"lane", func(b *testing.B) { put(b, "root", text("kid", "token")) }},
		{"child", func(b *testing.B) { put(b, "kid", text("", "token")) }},
		{"first", func(b *testing.B) { n++; put(b, fmt.Sprint("run_", n), text("", "token")) }},
		{"spawn", func(b *testing.B) { n++; put(b, "root", spawn(fmt.Sprint("kid_", n))) }},
	} {
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				of.put(b)
			}
		})
	}
}

// BenchmarkSendDelta is all that a recorded delta costs this process on its way into the log of a server that is
// another process: what BenchmarkSendDelta of producers counts, headers, the client and its system calls.
func BenchmarkSendDelta(b *testing.B) {
	events, url := deltas(b), serveApart(b)
	for _, runs := range []int{1, 64} {
		b.Run(strconv.Itoa(runs), func(b *testing.B) {
			nc, err := natskit.Dial(url, b.Name())
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			l, err := natsjs.Open(b.Context(), nc)
			if err != nil {
				b.Fatal(err)
			}
			var packs, stored atomic.Int64
			pubs := make([]*producers.Publisher, runs)
			for i := range pubs {
				cfg := producers.Config{Log: l, Key: schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d_%d", b.N, i)}}
				cfg.Key.Run += strconv.FormatInt(time.Now().UnixNano(), 36)
				cfg.Hooks.Stored = func(events, _ int, _ time.Duration) { packs.Add(1); stored.Add(int64(events)) }
				if pubs[i], err = producers.New(cfg); err != nil {
					b.Fatal(err)
				}
			}
			var one [1]schema.Event
			send := func(p producers.Sink, i int) {
				one[0] = events[i%len(events)]
				if err := p.Send(b.Context(), one[:]...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			cpu, n := cputime.Process(), 0
			for b.Loop() {
				send(pubs[n/16%runs], n)
				n++
			}
			for _, p := range pubs {
				if err := p.Close(context.WithoutCancel(b.Context())); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cputime.Process()-cpu)/float64(n), "cpu-ns/event")
			b.ReportMetric(float64(stored.Load())/float64(packs.Load()), "events/pack")
		})
	}
}

// deltas are those of recorded streams of a provider, in their order.
func deltas(b *testing.B) []schema.Event {
	b.Helper()
	_, read := anthropictest.Recordings(b)
	var out []schema.Event
	for _, name := range []string{"text-long", "pause-turn-step1", "thinking-signature-text"} {
		body := bytes.NewReader(read("anthropic/" + name + ".sse"))
		for e, err := range provider.Decode(body, anthropic.NewDecoder(provider.Config{TurnID: "turn_01JZQ5Z8Y4R6"})) {
			if err != nil {
				b.Fatal(err)
			}
			if info, _ := schema.Lookup(e.Type); info.Delta {
				out = append(out, e)
			}
		}
	}
	return out
}

// apart makes this program the server of a benchmark.
const apart = "AGENTSTREAM_TEST_SERVE"

// serveApart starts a server as a process of its own, so that its CPU time is not ours, and returns its URL.
func serveApart(b *testing.B) string {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeApart$", "-test.v")
	cmd.Env = append(os.Environ(), apart+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "url "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return url
		}
	}
	b.Fatal("the server's process has ended")
	return ""
}

// TestServeApart is the server of a benchmark, when it is started as such; it ends with its standard input.
func TestServeApart(t *testing.T) {
	if os.Getenv(apart) == "" {
		return
	}
	k := testkit.NATS(t)
	fmt.Println("url " + k.Server.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
