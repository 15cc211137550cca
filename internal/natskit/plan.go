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

// Plan says what Declare would do, without doing it: one Change for each stream that is not as asked for.
// The Layout is what would be in force afterwards. It refuses what Declare refuses before it has done
// anything; only the server can refuse the rest.
func Plan(ctx context.Context, js jetstream.JetStream, l Layout) (Layout, []Change, error) {
	have, err := Declared(ctx, js)
	if err != nil && !errors.Is(err, ErrNotDeclared) {
		return Layout{}, nil, err
	}
	if l, err = l.settle(have); err != nil {
		return Layout{}, nil, err
	}
	var changes []Change
	for p := range l.Partitions {
		want := l.stream(p)
		s, err := js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			changes = append(changes, Change{Stream: want.Name, New: true})
			continue
		}
		if err != nil {
			return Layout{}, nil, fmt.Errorf("natskit: read stream %s: %w", want.Name, err)
		}
		if fields := differences(s.CachedInfo().Config, want); len(fields) > 0 {
			changes = append(changes, Change{Stream: want.Name, Fields: fields})
		}
	}
	return l, changes, nil
}

func differences(have, want jetstream.StreamConfig) (fields []string) {
	add := func(name string, from, to any) {
		if from != to {
			fields = append(fields, fmt.Sprintf("%s: %v → %v", name, from, to))
		}
	}
	add("replicas", have.Replicas, want.Replicas)
	add("window", have.MaxAge, want.MaxAge)
	add("max bytes", have.MaxBytes, want.MaxBytes)
	add("duplicate window", have.Duplicates, want.Duplicates)
	add("direct reads", have.AllowDirect, want.AllowDirect)
	add("retention", have.Retention, want.Retention)
	add("discard", have.Discard, want.Discard)
	add("partitions", have.Metadata[metaPartitions], want.Metadata[metaPartitions])
	if !slices.Equal(have.Subjects, want.Subjects) {
		add("subjects", fmt.Sprint(have.Subjects), fmt.Sprint(want.Subjects))
	}
	var from, to jetstream.RePublish
	if have.RePublish != nil {
		from = *have.RePublish
	}
	if want.RePublish != nil {
		to = *want.RePublish
	}
	add("live copies", from, to)
	return fields
}
