package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// PublishCmd sends files, or what arrives on standard input, into a run.
type PublishCmd struct {
	cli.ServerFlags
	RunID       string        `name:"run" help:"Run to publish into. Without it the server begins a new one and its id is printed." placeholder:"ID"`
	Format      string        `help:"What the files hold: native events, protocol events of LangGraph (langgraph), recorded model calls, one per file, or transcripts of agents. auto finds it out from each file's first bytes, and where they do not tell, from its name." enum:"auto,native,langgraph,anthropic,openai-chat,openai-responses,gemini,swe-agent,openhands,gemini-cli,claude-code" default:"auto"`
	Pace        string        `help:"original keeps the times between events that carry a ts; none sends as fast as the server takes it." enum:"original,none" default:"none"`
	MaxGap      time.Duration `help:"Longest pause that --pace original keeps." default:"5s"`
	Child       string        `help:"Child run that the events belong to, where they name none." placeholder:"ID"`
	NoLifecycle bool          `help:"Do not add run.lifecycle events at the beginning and the end of recordings, do not let the server begin the run, and do not end it when a file is broken. What LangGraph says of the run itself is left out then."`
	JSON        bool          `name:"json" help:"Print one JSON object."`
	Files       []string      `arg:"" optional:"" name:"file" help:"Files to send, in order; - or none is standard input."`

	cli.Streams `kong:"-"`
	// Screen reports whether progress may be drawn; nil looks at Err and the environment.
	Screen *terminal.Screen `kong:"-"`
}

// Run publishes all files and prints one line: run, numbers, time. Every batch is sent under an
// idempotency key, so that what a lost answer makes it send again is stored once. When it fails,
// what was acknowledged stays stored, the error names up to where, and a run that was begun here is ended.
func (c *PublishCmd) Run(ctx context.Context) error {
	inputs, err := c.check()
	if err != nil {
		return err
	}
	p := &publishing{cmd: c, inputs: inputs, meter: newPublishMeter(c.Stderr(), c.screen(), totalBytes(inputs))}
	if p.client, err = cli.NewClient(c.ServerFlags, p.meter.Notice); err != nil {
		return err
	}
	defer p.client.Close()
	if err := p.look(ctx); err != nil {
		return err
	}
	if err := p.openRun(ctx); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	err = p.run(ctx, p.source)
	p.meter.Clear()
	if err != nil {
		return fmt.Errorf("publish to run %s: %w%s", p.runID, err, p.soFar())
	}
	took := time.Since(p.meter.Start).Seconds()
	return c.Print(c.JSON, map[string]any{"run_id": p.runID, "first_seq": p.first, "last_seq": p.last,
		"events": p.events, "seconds": took},
		"run=%s first_seq=%d last_seq=%d events=%d seconds=%.3f", p.runID, p.first, p.last, p.events, took)
}

// check looks at everything that can be wrong before the first byte is sent.
func (c *PublishCmd) check() ([]input, error) {
	var kind *format
	if c.Format != "" && c.Format != "auto" { // "": a struct that kong has not filled
		if kind = formatNamed(c.Format); kind == nil {
			return nil, fmt.Errorf("--format must be one of those that publish --help names, not %q", c.Format)
		}
	}
	for _, id := range []struct{ flag, value string }{{"--run", c.RunID}, {"--child", c.Child}} {
		if id.value == "" {
			continue
		}
		if err := schema.ValidRunID(id.value); err != nil {
			return nil, fmt.Errorf("%s: %w", id.flag, err)
		}
	}
	if c.Child != "" && c.Child == c.RunID {
		return nil, errors.New("--child: a run is not its own child")
	}
	if c.MaxGap < 0 {
		return nil, fmt.Errorf("--max-gap must be 0 or more, not %s", c.MaxGap)
	}
	return c.files(kind)
}

// files looks at the names on the command line.
func (c *PublishCmd) files(kind *format) ([]input, error) {
	files := c.Files
	if len(files) == 0 {
		files = []string{"-"}
	}
	var inputs []input
	stdin := 0
	for _, name := range files {
		if name == "-" {
			stdin++
			inputs = append(inputs, input{name: "standard input", size: -1, stdin: true, kind: kind})
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return nil, fmt.Errorf("%s: is a directory", name)
		}
		size := info.Size()
		if !info.Mode().IsRegular() {
			size = -1
		}
		inputs = append(inputs, input{name: name, size: size, kind: kind})
	}
	if stdin > 1 {
		return nil, errors.New("standard input can be read only once")
	}
	return inputs, nil
}

func (c *PublishCmd) screen() terminal.Screen {
	if c.Screen != nil {
		return *c.Screen
	}
	return terminal.ScreenOf(c.Stderr(), os.LookupEnv)
}

// look finds out what the files hold, as far as they can be read twice: before the first byte is sent.
func (p *publishing) look(ctx context.Context) error {
	for i, in := range p.inputs {
		if in.kind != nil || in.size < 0 {
			continue
		}
		o, err := p.open(ctx, in)
		if err == nil {
			err = p.kindOf(o)
			o.close()
			p.inputs[i].kind = o.kind
		}
		if err != nil {
			return err
		}
	}
	p.meter.read.n.Store(0)
	return nil
}
