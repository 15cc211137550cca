package natskit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Change is what Declare would do to one stream.
type Change struct {
	Stream string   `json:"stream"`
	New    bool     `json:"new,omitempty"`    // it would be made
	Fields []string `json:"fields,omitempty"` // what would change of it, "name: from → to"
}

// Plan returns what Declare would do, and does nothing: one Change for each stream that differs from the layout.
// The Layout is what would be in force afterwards. It refuses what Declare refuses before it has done
// anything; only the server can refuse the rest.
func Plan(ctx context.Context, js jetstream.JetStream, l Layout) (Layout, []Change, error) {
	have, err := ReadLayout(ctx, js)
	if err != nil && !errors.Is(err, ErrNotDeclared) {
		return Layout{}, nil, err
	}
	if l, err = l.settle(have); err != nil {
		return Layout{}, nil, err
	}
	var changes []Change
	for _, want := range l.streams() {
		c, err := planStream(ctx, js, want.Name, func(have jetstream.StreamConfig) Change { return differences(have, want) })
		if err != nil {
			return Layout{}, nil, err
		}
		changes = append(changes, c...)
	}
	for _, b := range l.buckets() {
		name := bucketStream(b.Bucket)
		c, err := planStream(ctx, js, name, func(have jetstream.StreamConfig) Change {
			c := Change{Stream: name}
			c.noteDifference("replicas", have.Replicas, b.Replicas)
			c.noteDifference("kept for", have.MaxAge, b.TTL)
			return c
		})
		if err != nil {
			return Layout{}, nil, err
		}
		changes = append(changes, c...)
	}
	return l, changes, nil
}

// planStream is what would be done to one stream, if anything.
func planStream(ctx context.Context, js jetstream.JetStream, name string,
	compare func(have jetstream.StreamConfig) Change) ([]Change, error) {
	s, err := stream(ctx, js, name)
	if errors.Is(err, ErrNotDeclared) {
		return []Change{{Stream: name, New: true}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("natskit: %w", err)
	}
	if c := compare(s.CachedInfo().Config); len(c.Fields) > 0 {
		return []Change{c}, nil
	}
	return nil, nil
}

// noteDifference notes a field that is not as asked for.
func (c *Change) noteDifference(name string, from, to any) {
	if from != to {
		c.Fields = append(c.Fields, fmt.Sprintf("%s: %v → %v", name, from, to))
	}
}

// limitOf is a limit of a stream; none is written in two ways.
func limitOf(n int64) int64 { return max(n, 0) }

func differences(have, want jetstream.StreamConfig) Change {
	c := Change{Stream: want.Name}
	c.noteDifference("replicas", have.Replicas, want.Replicas)
	c.noteDifference("window", have.MaxAge, want.MaxAge)
	c.noteDifference("max bytes", have.MaxBytes, want.MaxBytes)
	c.noteDifference("duplicate window", have.Duplicates, want.Duplicates)
	c.noteDifference("direct reads", have.AllowDirect, want.AllowDirect)
	c.noteDifference("retention", have.Retention, want.Retention)
	c.noteDifference("discard", have.Discard, want.Discard)
	c.noteDifference("storage", have.Storage, want.Storage)
	c.noteDifference("sealed", have.Sealed, want.Sealed)
	c.noteDifference("acknowledges", !have.NoAck, !want.NoAck)
	c.noteDifference("most messages", limitOf(have.MaxMsgs), limitOf(want.MaxMsgs))
	c.noteDifference("most messages of a subject", limitOf(have.MaxMsgsPerSubject), limitOf(want.MaxMsgsPerSubject))
	c.noteDifference("largest message", limitOf(int64(have.MaxMsgSize)), limitOf(int64(want.MaxMsgSize)))
	c.noteDifference("sources", have.Mirror != nil || len(have.Sources) > 0, false)
	c.noteDifference("partitions", have.Metadata[metaPartitions], want.Metadata[metaPartitions])
	if !slices.Equal(have.Subjects, want.Subjects) {
		c.noteDifference("subjects", fmt.Sprint(have.Subjects), fmt.Sprint(want.Subjects))
	}
	var from, to jetstream.RePublish
	if have.RePublish != nil {
		from = *have.RePublish
	}
	if want.RePublish != nil {
		to = *want.RePublish
	}
	c.noteDifference("live copies", from, to)
	return c
}
