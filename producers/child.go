package producers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentstream/schema"
)

// ofChild returns events that were appended to a child's id as its root's log has them; child "": to the run's own.
func ofChild(events []schema.Event, child string) []schema.Event {
	if child == "" {
		return events
	}
	events = slices.Clone(events) // they are the caller's
	lane(events, child)
	return events
}

// oneLane refuses events of other children.
func oneLane(events []schema.Event, child string) error {
	for i := range events {
		if id := events[i].ChildID; id != "" && id != child {
			return &schema.BatchError{Line: i + 1,
				Err: fmt.Errorf("%w: child_id %q, where only %q may write", schema.ErrForeignRun, id, child)}
		}
	}
	return nil
}

// lane makes events without a child that child's.
func lane(events []schema.Event, child string) {
	for i := range events {
		if events[i].RunID = ""; events[i].ChildID == "" {
			events[i].ChildID = child
		}
	}
}

// adopt notes in the log whose children those are that events spawn, before the events are stored: whoever has seen
// a spawn acknowledged may write to the child's id at any node. A spawn that is not stored after all leaves the note.
func (w *writer) adopt(ctx context.Context, events []schema.Event) error {
	var children []string
	for i := range events {
		if events[i].Type != schema.TypeChildSpawn {
			continue
		}
		child := schema.ChildOfSpawn(events[i].Payload)
		if child == "" || child == w.build.key.Run || w.isArchived(ctx, child) {
			continue
		}
		children = append(children, child)
	}
	if len(children) == 0 {
		return nil
	}
	err := w.patiently(ctx, func(ctx context.Context) error { return w.log.Adopt(ctx, w.build.key, children...) })
	if err != nil {
		return fmt.Errorf("spawn %s and %d more: %w", children[0], len(children)-1, err)
	}
	return nil
}

// rootOf returns the run whose child the writer's id is, by its head; "" when it is a run of its own.
func (w *writer) rootOf(ctx context.Context, head schema.Head) (root string, err error) {
	switch {
	case w.root:
		return "", nil
	case head.HasEvents() || head.Root != "" || w.parent == nil:
		return head.Root, nil
	}
	key := w.build.key
	err = w.patiently(ctx, func(ctx context.Context) (err error) {
		root, err = w.parent(ctx, key.Tenant, key.Run)
		if err != nil || root == "" || root == key.Run {
			root = ""
			return err
		}
		of, err := ReadHead(ctx, w.log, w.archive, schema.RunKey{Tenant: key.Tenant, Run: root}, "")
		if !of.HasEvents() || of.State.Final() { // its children's ids are free again
			root = ""
		}
		return err
	})
	if err != nil || root == "" {
		return "", err
	}
	// It is noted in the log again, so that all nodes go by the same note.
	err = w.patiently(ctx, func(ctx context.Context) error {
		err := w.log.Adopt(ctx, schema.RunKey{Tenant: key.Tenant, Run: root}, key.Run)
		if err == nil {
			head, err = w.log.Head(ctx, key, "")
		}
		return err
	})
	return head.Root, err
}

// isArchived reports whether a child's id is that of a run that the log no longer holds. An archive that does
// not answer holds up no spawn.
func (w *writer) isArchived(ctx context.Context, child string) bool {
	if w.archive == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, archivedTimeout)
	defer cancel()
	head, err := w.archive.Head(ctx, schema.RunKey{Tenant: w.build.key.Tenant, Run: child}, "")
	return err == nil && head.HasEvents()
}

// archivedTimeout is how long a spawn waits for the archive.
const archivedTimeout = time.Second

// asChild makes a publisher that was opened on a child's id write to the child's lane, in its root's log. It reports
// whether err asks for that.
func (p *Publisher) asChild(err error) bool {
	child := new(childError)
	if !errors.As(err, &child) {
		return false
	}
	cfg := p.cfg
	cfg.Key.Run = child.root
	p.writer, p.child = newWriter(cfg), p.cfg.Key.Run
	p.writer.root = true
	return true
}
