package publish

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"agentstream/adapters/demo"
	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// DemoCmd plays the demo run into a server, as an agent does that writes over HTTP: it obeys commands that are sent to
// the run.
type DemoCmd struct {
	cli.ServerFlags
	RunID  string  `name:"run" help:"Id of the run; without it the server makes one." placeholder:"ID"`
	Loop   bool    `help:"Begin another run when one has ended, until interrupted; with --run their ids are ID, ID-2, ID-3 …"`
	Script string  `help:"What the run tells: tour, plan (it waits until its plan is approved), failure, or quick (two seconds)." enum:"tour,plan,failure,quick" default:"tour"`
	Speed  float64 `help:"How many times faster than natural." default:"1"`
	JSON   bool    `name:"json" help:"Print one JSON object per run."`

	cli.Streams `kong:"-"`
}

// Run plays one run, or one after the other. It prints each run when it begins.
func (c *DemoCmd) Run(ctx context.Context) error {
	if c.RunID != "" {
		if err := schema.ValidRunID(c.RunID); err != nil {
			return fmt.Errorf("--run: %w", err)
		}
	}
	if !(c.Speed > 0) {
		return fmt.Errorf("--speed must be more than 0, not %v", c.Speed)
	}
	meter := newPublishMeter(c.Stderr(), terminal.Screen{}, -1)
	cl, err := cli.NewClient(c.ServerFlags, meter.Notice)
	if err != nil {
		return err
	}
	defer cl.Close()
	for n := 1; ; n++ {
		id := c.RunID
		if id != "" && n > 1 {
			id += "-" + strconv.Itoa(n)
		}
		if err := c.play(ctx, cl, id, meter); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		if !c.Loop {
			return nil
		}
	}
}

// play plays one run to its end.
func (c *DemoCmd) play(ctx context.Context, cl *agentstream.Client, id string, meter *publishMeter) error {
	created, err := cl.CreateRun(ctx, agentstream.NewRun{RunID: id})
	if err != nil {
		return err
	}
	id = created.RunID
	base := strings.TrimSuffix(c.Server, "/")
	links := []string{base + "/console/#/run/" + url.PathEscape(id),
		base + "/v1/agent/runs/" + url.PathEscape(id) + "/stream"}
	credential := ""
	if c.Token != "" || c.TokenFile != "" {
		credential = cli.CurlCredential
	}
	if err := c.Print(c.JSON, map[string]string{"run_id": id, "console": links[0], "stream": links[1]},
		"run=%s\n  console  %s\n  watch    curl -N %s%s", id, links[0], credential, links[1]); err != nil {
		return err
	}
	p := &publishing{cmd: &PublishCmd{}, client: cl, meter: meter, runID: id, minted: true, key: "demo-" + id + "-"}
	p.took(created.Receipt, 1)
	return p.run(ctx, func(ctx context.Context, out emit) error {
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		commands := make(chan schema.Event)
		go func() {
			defer close(commands)
			if err := follow(ctx, cl, id, created.Last, commands); err != nil {
				stop(err)
			}
		}()
		agent, err := demo.New(demo.Config{Sink: &written{out: out}, RunID: id, Script: c.Script, Speed: c.Speed,
			Commands: commands})
		if err != nil {
			return err
		}
		err = agent.Run(ctx)
		stop(nil)
		for range commands { // until the one who hands them over has gone
		}
		return err
	})
}

// follow hands over the commands to a run after an event, until the run has ended.
func follow(ctx context.Context, cl *agentstream.Client, run string, after schema.Seq, to chan<- schema.Event) error {
	for e, err := range cl.Run(run).Watch(ctx, agentstream.Options{After: after, Types: []string{"command.*"}}).All(ctx) {
		if gap := new(agentstream.GapError); errors.As(err, &gap) {
			continue // other types are in between
		}
		if err != nil {
			return err
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// written is the agent's way to the server: events are sent in batches, one request at a time.
type written struct {
	out emit

	mu     sync.Mutex
	newest chan struct{} // closed once the newest event is stored
}

// Send hands events to the sender.
func (w *written) Send(_ context.Context, events ...schema.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range events {
		w.newest = make(chan struct{})
		if err := w.out(item{line: agentstream.AppendNew(nil, &events[i]), stored: w.newest}); err != nil {
			return err
		}
	}
	return nil
}

// Flush waits until what was sent is stored.
func (w *written) Flush(ctx context.Context) error {
	w.mu.Lock()
	newest := w.newest
	w.mu.Unlock()
	if newest == nil {
		return nil
	}
	select {
	case <-newest:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
