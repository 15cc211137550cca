package taps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/internal/backoff"
	"agentstream/internal/spans"
	"agentstream/persister"
	"agentstream/schema"
	"agentstream/tap"
)

// runOver delivers what a server gives over HTTP until ctx ends. The server keeps the place, which moves when a
// batch is delivered.
func (c *RunCmd) runOver(ctx context.Context, spec tap.Spec, log *slog.Logger) error {
	client, err := cli.NewClient(cli.ServerFlags{Server: c.Server, Token: c.Token, TokenFile: c.TokenFile, CA: c.CA,
		GiveUp: 0, Wait: true}, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	who, err := client.WhoAmI(ctx)
	if err != nil {
		return err
	}
	if c.Tenant != "" && c.Tenant != who.Tenant {
		return fmt.Errorf("--tenant: the token is one of %s", who.Tenant)
	}
	to, err := c.open(ctx, serverHistory{client})
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }() // what was written is written
	tracer, sending, err := c.openSpans(process.NewMetrics(), log)
	if err != nil {
		return err
	}
	d := &delivery{client: client, tracer: tracer, name: spec.Name, tenant: who.Tenant, to: to, log: log,
		linger: max(c.Linger, time.Millisecond), most: max(c.Batch, 1)}
	o := agentstream.TapOptions{Name: spec.Name, Types: spec.Types, From: spec.From, New: c.From == "new"}
	log.Info("tap: delivering", "tap", spec.Name, "server", c.Server, "tenant", who.Tenant)
	return process.RunStages(ctx, []process.Part{{Name: "tap", Run: func(ctx context.Context) error {
		return d.run(ctx, o)
	}}}, sending)
}

// delivery carries records from a server to a sink.
type delivery struct {
	client *agentstream.Client
	name   string
	tenant string
	to     tap.Receiver
	log    *slog.Logger
	tracer *spans.Tracer // nil: there are no spans
	linger time.Duration
	most   int // events of a batch

	batch  []tap.Event
	bytes  int
	runs   []schema.RunKey // of what was written and is not acknowledged
	cursor string          // after the batch; "": there is nothing to acknowledge
}

// batchBytes bounds a batch, beside its events.
const batchBytes = 8 << 20

// run delivers until ctx ends, and then what it has.
func (d *delivery) run(ctx context.Context, o agentstream.TapOptions) error {
	reading, stop := context.WithCancel(ctx)
	records, failed := make(chan agentstream.TapRecord), make(chan error, 1)
	go func() {
		defer close(records)
		for r, err := range d.client.Tap(reading, o) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case records <- r:
			case <-reading.Done():
				return
			}
		}
	}()
	defer func() {
		stop()
		for range records { // its end is that of the goroutine
		}
	}()
	tick := time.NewTicker(d.linger)
	defer tick.Stop()
	for {
		var err error
		select {
		case r, more := <-records:
			if !more {
				return d.finish(ctx, failed)
			}
			if err = d.add(&r); err == nil && (len(d.batch) >= d.most || d.bytes >= batchBytes) {
				err = d.deliver(ctx)
			}
		case <-tick.C:
			err = d.deliver(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// finish delivers what is left, and returns why there is no more.
func (d *delivery) finish(ctx context.Context, failed <-chan error) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	err := d.deliver(last)
	select {
	case cause := <-failed:
		if ctx.Err() == nil {
			return cause
		}
	default:
	}
	return err
}

// leaveWait bounds the end of a tap.
const leaveWait = 5 * time.Second

// add adds a record to the batch.
func (d *delivery) add(r *agentstream.TapRecord) error {
	d.cursor = r.Cursor
	if g := r.Gap; g != nil {
		d.log.Error("tap: events are kept nowhere", "run", g.Run, "first", g.First, "last", g.Last, "reason", g.Reason)
		return nil
	}
	if r.Line == nil {
		return nil
	}
	e, err := r.Event()
	if err != nil {
		return fmt.Errorf("tap: %w", err)
	}
	ts, _ := time.Parse(time.RFC3339Nano, e.TS) // zero where the line has none
	d.batch = append(d.batch, tap.Event{Run: schema.RunKey{Tenant: d.tenant, Run: e.RunID}, Child: e.ChildID,
		Seq: e.Seq, ID: e.ID, Type: e.Type, TS: ts, Line: r.Line})
	d.bytes += len(r.Line)
	return nil
}

// deliver writes the batch, and acknowledges it.
func (d *delivery) deliver(ctx context.Context) error {
	begun := time.Now()
	err := d.write(ctx, d.batch)
	if d.tracer != nil && len(d.batch) > 0 {
		d.tracer.Add(spans.Batch{Name: batchSpan, Events: len(d.batch), Took: time.Since(begun), Failed: err != nil})
	}
	if err != nil {
		return err
	}
	d.runs = tap.AppendRuns(d.runs, d.batch)
	d.batch, d.bytes = nil, 0
	if d.cursor == "" {
		return nil
	}
	if err := d.client.Acknowledge(ctx, d.name, d.cursor); err != nil {
		return err
	}
	d.cursor = ""
	d.confirm(ctx)
	return nil
}

// confirm confirms what was written to the sink: the server has moved the place.
func (d *delivery) confirm(ctx context.Context) {
	runs := d.runs
	d.runs = nil
	if err := tap.Confirm(ctx, d.to, runs); err != nil {
		d.log.Warn("tap: the sink has not used that a batch is done", "error", err)
	}
}

// write writes events, however often that takes. A batch of which the sink refuses an event is divided until that is
// found.
func (d *delivery) write(ctx context.Context, batch []tap.Event) error {
	for failures := 0; len(batch) > 0; failures++ {
		refused, err := d.to.Write(ctx, batch)
		if poison := errors.Is(err, persister.ErrPoison); poison && len(batch) == 1 {
			refused, err = []tap.Refusal{{Detail: err.Error()}}, nil
		} else if poison {
			middle := len(batch) / 2
			return errors.Join(d.write(ctx, batch[:middle]), d.write(ctx, batch[middle:]))
		}
		for _, r := range refused {
			d.log.Error("tap: the sink has refused an event", "event", batch[r.Event].Key(), "detail", r.Detail)
		}
		if err == nil || tap.IsStop(err) || ctx.Err() != nil {
			return err
		}
		d.log.Warn("tap: the sink is waited for", "error", err)
		if cause := backoff.Sleep(ctx, backoff.Delay(failures, 100*time.Millisecond, 10*time.Second)); cause != nil {
			return errors.Join(err, cause)
		}
	}
	return nil
}
