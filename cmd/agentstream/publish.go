package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"agentstream/schema"
)

// PublishCmd sends files, or what arrives on standard input, into a run.
type PublishCmd struct {
	ServerFlags
	RunID       string        `name:"run" help:"Run to publish into. Without it the server begins a new one and its id is printed." placeholder:"ID"`
	Format      string        `help:"What the files hold: native events (NDJSON or JSON arrays), or recorded Anthropic message streams (SSE or JSONL), one model call per file." enum:"native,anthropic" default:"native"`
	Pace        string        `help:"original keeps the times between events that carry a ts; none sends as fast as the server takes it." enum:"original,none" default:"none"`
	MaxGap      time.Duration `help:"Longest pause that --pace original keeps." default:"5s"`
	Child       string        `help:"Child run that the events belong to, where they name none." placeholder:"ID"`
	NoLifecycle bool          `help:"Do not add run.lifecycle events at the beginning and the end (anthropic), and do not let the server begin the run."`
	Files       []string      `arg:"" optional:"" name:"file" help:"Files to send, in order; - or none is standard input."`

	Streams `kong:"-"`
	// Screen says whether progress may be drawn; nil looks at Err and the environment.
	Screen *Screen `kong:"-"`
}

// Run publishes all files and prints one line: run, numbers, time. Every batch is sent under an
// idempotency key, so that what a lost answer makes it send again is stored once. When it fails,
// what was acknowledged stays stored, and the error says up to where.
func (c *PublishCmd) Run(ctx context.Context) error {
	inputs, err := c.check()
	if err != nil {
		return err
	}
	p := &publishing{cmd: c, inputs: inputs, meter: newMeter(c.err(), c.screen(), totalBytes(inputs))}
	if p.client, err = newClient(c.ServerFlags, p.meter.notice); err != nil {
		return err
	}
	defer p.client.Close()
	if err := p.openRun(ctx); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	err = p.run(ctx)
	p.meter.clear()
	if err != nil {
		return fmt.Errorf("publish to run %s: %w%s", p.runID, err, p.soFar())
	}
	fmt.Fprintf(c.out(), "run=%s first_seq=%d last_seq=%d events=%d seconds=%.3f\n",
		p.runID, p.first, p.last, p.events, time.Since(p.meter.start).Seconds())
	return nil
}

// check looks at everything that can be wrong before the first byte is sent.
func (c *PublishCmd) check() ([]input, error) {
	if c.Format == "" { // a struct that kong has not filled
		c.Format = "native"
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
		return nil, fmt.Errorf("--max-gap %s: want no less than 0", c.MaxGap)
	}
	files := c.Files
	if len(files) == 0 {
		files = []string{"-"}
	}
	var inputs []input
	stdin := 0
	for _, name := range files {
		if name == "-" {
			stdin++
			inputs = append(inputs, input{name: "standard input", size: -1, stdin: true})
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
		inputs = append(inputs, input{name: name, size: size})
	}
	if stdin > 1 {
		return nil, errors.New("standard input can be read only once")
	}
	return inputs, nil
}

func (c *PublishCmd) screen() Screen {
	if c.Screen != nil {
		return *c.Screen
	}
	return screenOf(c.err(), os.LookupEnv)
}

// input is one file to send.
type input struct {
	name  string
	size  int64 // bytes; -1 is not known
	stdin bool
}

func totalBytes(inputs []input) int64 {
	var total int64
	for _, in := range inputs {
		if in.size < 0 {
			return -1
		}
		total += in.size
	}
	return total
}

// open gives the input's bytes; reading ends with ctx.
func (p *publishing) open(ctx context.Context, in input) (io.ReadCloser, error) {
	var r io.ReadCloser
	if in.stdin {
		r = interruptible(ctx, p.cmd.in())
	} else {
		f, err := os.Open(in.name)
		if err != nil {
			return nil, err
		}
		r = f
	}
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r, &p.meter.read), r}, nil
}

// interruptible lets a read of a terminal or a pipe be given up, which the system has no way to
// break off. The goroutine that is left in it ends with the read or with the process.
func interruptible(ctx context.Context, r io.Reader) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, func() { pr.CloseWithError(context.Cause(ctx)) })
	return struct {
		io.Reader
		io.Closer
	}{pr, closer(func() error { stop(); return pr.Close() })}
}

type closer func() error

func (c closer) Close() error { return c() }
