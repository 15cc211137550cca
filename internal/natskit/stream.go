package natskit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/schema"
)

// Layout is how the log lies in JetStream. The zero value is a single node with the defaults.
type Layout struct {
	Partitions int           // streams; fixed for the life of a deployment; default 8
	Replicas   int           // copies of each stream; default 1; production wants 3
	MaxAge     time.Duration // window of the stream; default 72 h; older events live in the archive
	MaxBytes   int64         // fuse per stream in bytes; default 0: none. It overrides MaxAge: alarm first
}

func (l Layout) withDefaults() Layout {
	if l.Partitions == 0 {
		l.Partitions = 8
	}
	if l.Replicas == 0 {
		l.Replicas = 1
	}
	if l.MaxAge == 0 {
		l.MaxAge = 72 * time.Hour
	}
	if l.MaxBytes == 0 {
		l.MaxBytes = -1
	}
	return l
}

func (l Layout) validate() error {
	if l.Partitions < 1 || l.Partitions > 256 {
		return fmt.Errorf("natskit: %d partitions, 1 to 256 allowed", l.Partitions)
	}
	return nil
}

// Keys of the streams' metadata.
const (
	metaPartitions = "agentstream-partitions"
)

const streamPrefix = "AGENT_"

// StreamName is the stream of a partition.
func StreamName(partition int) string { return streamPrefix + strconv.Itoa(partition) }

// ErrNotDeclared says that this JetStream holds no log yet.
var ErrNotDeclared = errors.New("streams are not declared")

// Declare creates the streams, or adjusts the window of those that exist. It refuses to change the
// number of partitions: a run's packs would lie in two streams. Safe to call from many nodes.
func Declare(ctx context.Context, js jetstream.JetStream, l Layout) error {
	l = l.withDefaults()
	if err := l.validate(); err != nil {
		return err
	}
	switch have, err := Partitions(ctx, js); {
	case err == nil && have != l.Partitions:
		return fmt.Errorf("natskit: declare streams: the log has %d partitions, %d asked for: the number cannot change", have, l.Partitions)
	case err != nil && !errors.Is(err, ErrNotDeclared):
		return err
	}
	for p := range l.Partitions {
		if _, err := js.CreateOrUpdateStream(ctx, l.stream(p)); err != nil {
			return fmt.Errorf("natskit: declare stream %s: %w", StreamName(p), err)
		}
	}
	return nil
}

func (l Layout) stream(p int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        StreamName(p),
		Description: "agentstream: packs of run events, partition " + strconv.Itoa(p),
		Subjects:    []string{schema.PartitionFilter(p)},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		MaxAge:      l.MaxAge,
		MaxBytes:    l.MaxBytes,
		Discard:     jetstream.DiscardOld,
		Replicas:    l.Replicas,
		AllowDirect: true,
		// Copies of what has been stored, and of nothing else: a subscriber of the ingest subject
		// would also see publishes that the compare-and-set refuses.
		RePublish: &jetstream.RePublish{Source: schema.PartitionFilter(p), Destination: livePartition(p)},
		// No duplicate window: publishing is compare-and-set, and the window costs memory.
		Duplicates: 100 * time.Millisecond,
		Metadata:   map[string]string{metaPartitions: strconv.Itoa(l.Partitions)},
	}
}

func livePartition(p int) string {
	return schema.LivePrefix + "." + strings.TrimPrefix(schema.PartitionFilter(p), schema.StorePrefix+".")
}

// Partitions reads how many partitions the log was declared with. It wraps ErrNotDeclared when
// there is no log.
func Partitions(ctx context.Context, js jetstream.JetStream) (int, error) {
	s, err := js.Stream(ctx, StreamName(0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, fmt.Errorf("natskit: %w", ErrNotDeclared)
	}
	if err != nil {
		return 0, fmt.Errorf("natskit: read stream %s: %w", StreamName(0), err)
	}
	n, err := strconv.Atoi(s.CachedInfo().Config.Metadata[metaPartitions])
	if err != nil || n < 1 {
		return 0, fmt.Errorf("natskit: stream %s was not made by this product: no %s in its metadata", StreamName(0), metaPartitions)
	}
	return n, nil
}

// Replicas reads how many copies the log's streams have.
func Replicas(ctx context.Context, js jetstream.JetStream) (int, error) {
	s, err := js.Stream(ctx, StreamName(0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, fmt.Errorf("natskit: %w (run agentstream migrate)", ErrNotDeclared)
	}
	if err != nil {
		return 0, fmt.Errorf("natskit: read stream %s: %w", StreamName(0), err)
	}
	return s.CachedInfo().Config.Replicas, nil
}
