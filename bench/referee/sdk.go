package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// sdkResult is what the publishing process says of itself.
type sdkResult struct {
	Events  int     `json:"events"` // acknowledged within the seconds
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"` // of this process, seconds
}

// sdk publishes through producers.Publisher, one event per call, as an agent does, and prints one
// line of JSON. It is a process of its own so that its CPU time is not the server's.
func sdk(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sdk", flag.ContinueOnError)
	addr := flags.String("nats", "", "address of the NATS server")
	runs := flags.Int("runs", 1, "runs to publish to")
	dur := flags.Duration("dur", 4*time.Second, "length of the timed part")
	warm := flags.Duration("warm", time.Second, "warm-up that is not counted")
	if err := flags.Parse(args); err != nil {
		return err
	}
	nc, err := natskit.Dial("nats://"+*addr, "referee")
	if err != nil {
		return err
	}
	defer nc.Close()
	log, err := natsjs.Open(ctx, nc)
	if err != nil {
		return err
	}
	pubs := make([]*producers.Publisher, *runs)
	for i := range pubs {
		key := schema.RunKey{Tenant: "default", Run: fmt.Sprintf("sdk_%04d", i)}
		if pubs[i], err = producers.New(producers.Config{Log: log, Key: key}); err != nil {
			return err
		}
	}
	if _, err := publishFor(ctx, pubs, *warm); err != nil {
		return err
	}
	began, cpu := time.Now(), cpuOf(os.Getpid(), false)
	events, err := publishFor(ctx, pubs, *dur)
	res := sdkResult{Events: events, Seconds: time.Since(began).Seconds(), CPU: cpuOf(os.Getpid(), false) - cpu}
	for _, p := range pubs {
		err = errors.Join(err, p.Close(ctx))
	}
	return errors.Join(err, json.NewEncoder(out).Encode(res))
}

// publishers work in so many goroutines, as the harness has connections.
const sdkWorkers = 4

// publishFor publishes for a while, waits until all is acknowledged, and returns how much that was.
func publishFor(ctx context.Context, pubs []*producers.Publisher, dur time.Duration) (int, error) {
	until := time.Now().Add(dur)
	event := schema.Event{Type: schema.TypeTextDelta,
		Payload: []byte(`{"text":"` + strings.Repeat("The quick brown fox ", 8) + `"}`)}
	sent := make([]int, min(sdkWorkers, len(pubs)))
	g, ctx := errgroup.WithContext(ctx)
	for w := range sent {
		g.Go(func() error {
			for time.Now().Before(until) {
				for i := w; i < len(pubs); i += len(sent) {
					for range 16 { // the clock is not read for each event
						if err := pubs[i].Send(ctx, event); err != nil {
							return err
						}
						sent[w]++
					}
				}
			}
			for i := w; i < len(pubs); i += len(sent) {
				if err := pubs[i].Flush(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	sum := 0
	for _, n := range sent {
		sum += n
	}
	return sum, err
}

// measureSDK loads a shape from a publishing process.
func (r *referee) measureSDK(ctx context.Context, l line, k jobKey, env, serveArgs []string) (map[string]float64,
	error) {
	var res sdkResult
	err := r.under(ctx, k, env, serveArgs, func(int) error {
		pub := exec.CommandContext(ctx, r.self, "sdk", "-nats", r.ports.nats(), "-runs", fmt.Sprint(l.sdk), "-dur",
			l.window.String())
		var said strings.Builder
		pub.Stderr = &said
		b, err := pub.Output()
		if err != nil {
			return fmt.Errorf("sdk: %w: %s", err, said.String())
		}
		return json.Unmarshal(b, &res)
	})
	if err != nil {
		return nil, err
	}
	perM := 1e6 / float64(res.Events)
	return map[string]float64{"acked_s": float64(res.Events) / res.Seconds, "publisher_cpu_s_per_M": res.CPU * perM}, nil
}
