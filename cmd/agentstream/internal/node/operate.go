package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/edge"
	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/persister/postgres"
)

// operator answers what operators ask about the archive.
type operator struct {
	letters archive.DeadLetters
	losses  archive.Losses
	status  func() []persister.Status // nothing where another process stores
}

var _ edge.Operator = (*operator)(nil)

// longestLetter bounds what is shown of a dead letter, in bytes.
const longestLetter = 16 << 10

// mostLosses bounds the lost ranges of runs that are listed.
const mostLosses = 100

// Storage returns what the persister of this process reports, and what the archive's tables record of the tenant.
func (o *operator) Storage(ctx context.Context, tenant string) edge.Storage {
	out := edge.Storage{Partitions: o.partitions()}
	losses, err := o.losses.Losses(ctx)
	if err != nil {
		return out // not known
	}
	out.Losses = make([]edge.Loss, 0, len(losses))
	for i := range losses {
		l := &losses[i]
		out.Losses = append(out.Losses, edge.Loss{Stream: l.Stream, Reason: l.Reason, Text: l.String(), Found: l.Found,
			Open: l.Open()})
	}
	runs, _, err := o.losses.RunLosses(ctx, tenant, mostLosses)
	if err != nil {
		return edge.Storage{Partitions: out.Partitions}
	}
	for i := range runs {
		l := &runs[i]
		out.Losses = append(out.Losses, edge.Loss{RunID: l.Key.Run, Reason: l.Reason, Text: l.String(), Found: l.Found,
			Open: true})
	}
	return out
}

// partitions returns what the persister of this process reports.
func (o *operator) partitions() (out []edge.Partition) {
	for _, s := range o.status() {
		p := edge.Partition{Stream: s.Stream, State: "active"}
		if s.Standby {
			p.State = "standby"
		}
		if !s.LagAt.IsZero() {
			age := 0.0
			if !s.Lag.Oldest.IsZero() {
				age = time.Since(s.Lag.Oldest).Seconds()
			}
			p.LagMessages, p.LagEvents, p.LagSeconds, p.LagAt = &s.Lag.Messages, &s.LagEvents, &age, &s.LagAt
		}
		switch {
		case s.Alarm != "":
			p.Trouble = &s.Alarm
		case !s.RetryingSince.IsZero():
			p.Trouble = &s.LastError
		}
		out = append(out, p)
	}
	return out
}

// DeadLetters returns the newest dead letters of a tenant.
func (o *operator) DeadLetters(ctx context.Context, tenant string, most int) ([]edge.DeadLetter, int, error) {
	counts, err := o.letters.CountDeadLetters(ctx, deadletter.Query{Tenant: tenant})
	if err != nil {
		return nil, 0, explainDenied(err)
	}
	all := 0
	for _, n := range counts {
		all += n
	}
	stored, err := o.letters.FindDeadLetters(ctx, deadletter.Query{Tenant: tenant, Limit: most, Bodies: true})
	out := make([]edge.DeadLetter, 0, len(stored))
	for i := range stored {
		l := &stored[i]
		out = append(out, edge.DeadLetter{ID: l.Name, RunID: l.Key.Run, Seq: l.Seq, Stream: l.Stream, Reason: l.Reason,
			Detail: l.Detail,
			Since:  l.Since.UTC(), Tries: l.Tries, Error: l.Error, Bytes: l.Size,
			Body: string(l.Body[:min(len(l.Body), longestLetter)])})
	}
	return out, all, err
}

// findByID returns the dead letter of an id.
func (o *operator) findByID(ctx context.Context, tenant, id string, bodies bool) ([]deadletter.Stored, error) {
	found, err := o.letters.FindDeadLetters(ctx,
		deadletter.Query{Names: []string{id}, Tenant: tenant, Limit: 1, Bodies: bodies})
	if errors.Is(err, deadletter.ErrName) {
		return nil, nil
	}
	return found, explainDenied(err)
}

// explainDenied makes an error of the database that refuses its reader (migrate --grant-reader) one that says
// that this node has no dead letters.
func explainDenied(err error) error {
	if postgres.IsDenied(err) {
		return fmt.Errorf("%w: %w", edge.ErrNoRuns, err)
	}
	return err
}

// Retry decodes and stores a dead letter again.
func (o *operator) Retry(ctx context.Context, tenant, id string) (stays string, found bool, err error) {
	letters, err := o.findByID(ctx, tenant, id, true)
	if err != nil || len(letters) == 0 {
		return "", false, err
	}
	outcomes, err := deadletter.Redrive(ctx, o.letters, letters...)
	if err != nil {
		return "", true, explainDenied(err)
	}
	return outcomes[0].Error, true, nil
}

// Drop removes a dead letter.
func (o *operator) Drop(ctx context.Context, tenant, id string) (bool, error) {
	letters, err := o.findByID(ctx, tenant, id, false)
	if err != nil || len(letters) == 0 {
		return false, err
	}
	n, err := o.letters.DropDeadLetters(ctx, []string{id})
	return n > 0, explainDenied(err)
}
