package sessions

import (
	"context"
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/qoder"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// at returns a projector that was fed a session up to through, which must exist or be 0.
func at(ctx context.Context, x *protocol.Call, run string, through schema.Seq, req dialect.Request) (*qoder.Projector, error) {
	kept, err := x.At(ctx, run, through, req)
	if err != nil {
		return nil, err
	}
	p, ok := kept.(*qoder.Projector)
	if !ok {
		return nil, fmt.Errorf("projector of session %s is a %T", run, kept)
	}
	return p, nil
}

// newest returns a session as it stands. The error wraps fanout.ErrNotFound for one that is not there, and
// dialect.ErrNotFound for one that was deleted.
func newest(ctx context.Context, x *protocol.Call, run string, req dialect.Request) (schema.Head, *qoder.Projector, error) {
	head, err := x.Head(ctx, run)
	if err != nil {
		return head, nil, err
	}
	p, err := at(ctx, x, run, head.Last, req)
	if err != nil {
		return head, nil, err
	}
	return head, p, p.Admit(req)
}

// alive refuses what changes an archived session (qoder §1.4).
func alive(p *qoder.Projector) error {
	if p.Archived() {
		return dialect.Refuse(dialect.ErrGone, "session is archived")
	}
	return nil
}
