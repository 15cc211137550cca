package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// Bounds of a search for a child's root.
const (
	parentTimeout = 10 * time.Second // long enough for servers to elect a leader
	parentAtOnce  = 8                // partitions
)

// Parent returns the root run in whose log a child of the tenant writes, "" when the stream has nothing
// of it. Of several it returns the one in which the child wrote last. The error wraps
// schema.ErrBadID or schema.ErrUnavailable.
//
// A child's packs lie in its root's partition, which the child's id does not show, so every partition's
// leader is asked. Each looks through the subjects of the tenant that it holds: the cost grows with the
// runs within the window, so callers ask the archive first and remember the answer.
func (l *Log) Parent(ctx context.Context, tenant, child string) (string, error) {
	if err := schema.ValidTenant(tenant); err != nil {
		return "", err
	}
	if err := schema.ValidRunID(child); err != nil { // a wildcard would find the children of others
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, parentTimeout)
	defer cancel()
	found := make([]natskit.Msg, l.partitions)
	var group errgroup.Group // without a context: one partition that is away does not hide the others
	group.SetLimit(parentAtOnce)
	for p := range l.partitions {
		group.Go(func() error {
			m, err := natskit.LastFromLeader(ctx, l.nc, natskit.StreamName(p), schema.ChildFilter(tenant, child, p))
			if errors.Is(err, natskit.ErrNoMessage) {
				return nil
			}
			found[p] = m
			return err
		})
	}
	err := group.Wait()
	var newest natskit.Msg
	for _, m := range found {
		if m.Seq > 0 && (newest.Seq == 0 || m.Time.After(newest.Time)) {
			newest = m
		}
	}
	if newest.Seq == 0 {
		if err != nil {
			return "", fmt.Errorf("natsjs: root run of %s/%s: %w: %w", tenant, child, schema.ErrUnavailable, err)
		}
		return "", nil
	}
	key, _, err := schema.ParseSubject(newest.Subject)
	if err != nil {
		return "", fmt.Errorf("natsjs: root run of %s/%s: %w", tenant, child, err)
	}
	return key.Run, nil
}
