package node

import (
	"context"
	"errors"
	"fmt"

	"agentstream/producers"
	"agentstream/schema"
)

// forgetting is a store that knows which runs are to be forgotten.
type forgetting interface {
	IsForgotten(ctx context.Context, key schema.RunKey) (bool, error)
}

// guardedArchive is the archive of those who write. For readers a run that is to be forgotten does not
// exist. A writer that believed it would begin the run again, and events that were acknowledged to it would be dropped.
type guardedArchive struct {
	producers.Archive
	marks forgetting
}

// GuardArchive returns the archive of those who write.
func GuardArchive(a producers.Archive, marks forgetting) producers.Archive {
	return guardedArchive{a, marks}
}

var errForgotten = errors.New("the run was deleted a moment ago; its id is free again within the hour")

// Head refuses with schema.ErrEnded while the mark stands.
func (g guardedArchive) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	head, err := g.Archive.Head(ctx, key, lane)
	if err != nil || head.HasEvents() {
		return head, err
	}
	marked, err := g.marks.IsForgotten(ctx, key)
	if err == nil && marked {
		err = fmt.Errorf("run %s: %w: %w", key.Run, errForgotten, schema.ErrEnded)
	}
	return head, err
}
