package publish

import (
	"context"
	"errors"
	"fmt"

	"agentstream/adapters/langgraph"
	agentstream "agentstream/clients/go"
)

// graphEvents reads what a LangGraph agent sends, each line as it comes. A line that cannot be read is reported, and
// the next are read. The lines themselves say how the run goes.
func graphEvents(ctx context.Context, p *publishing, in *opened, out emit) error {
	cfg := langgraph.Config{RunID: p.runID, Lifecycle: !p.cmd.NoLifecycle}
	if p.cmd.Child != "" {
		return errors.New("--child: the events of a LangGraph agent name their namespaces")
	}
	if cfg.Lifecycle && !p.minted {
		was, err := p.client.Run(p.runID).Snapshot(ctx, 0)
		if err != nil && !errors.Is(err, agentstream.ErrNotFound) {
			return fmt.Errorf("look for run %s: %w", p.runID, err)
		}
		if err == nil {
			for _, q := range was.OpenInputs() {
				cfg.Requests = append(cfg.Requests, q.ID)
			}
		}
	}
	for e, err := range langgraph.Decode(in, cfg) {
		var line *langgraph.LineError
		switch {
		case errors.As(err, &line):
			bad := &badInput{in.name, line.Line, errors.New(line.Why)}
			p.meter.Notice("%v", bad)
			if p.damage == nil {
				p.damage = bad
			}
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return &badInput{in.name, 0, err}
		default:
			if err := out(itemOf(&e, in.name)); err != nil {
				return err
			}
		}
	}
	return nil
}
