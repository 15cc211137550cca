package natskit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/schema"
)

// Layout is how the log lies in JetStream. Zero fields are what the log has already, and the
// defaults when there is none yet: nobody takes copies away by not naming them.
type Layout struct {
	Partitions int           // streams; fixed for the life of a deployment; default 8
	Replicas   int           // copies of each stream; default 1; production wants 3
	MaxAge     time.Duration // window of the stream; default 72 h; older events live in the archive
	MaxBytes   int64         // fuse per stream in bytes; default 0: none. It overrides MaxAge: alarm first
	BlobBytes  int64         // that the blobs of all runs may take; default 0: no bound but the servers' own
	// one process writes and reads the log, and needs no copies of what is stored; default false, whatever is there
	Alone bool
}

// or fills zero fields from what is there.
func (l Layout) or(have Layout) Layout {
	return Layout{
		Partitions: cmp.Or(l.Partitions, have.Partitions), Replicas: cmp.Or(l.Replicas, have.Replicas),
		MaxAge: cmp.Or(l.MaxAge, have.MaxAge), MaxBytes: cmp.Or(l.MaxBytes, have.MaxBytes),
		BlobBytes: cmp.Or(l.BlobBytes, have.BlobBytes), Alone: l.Alone,
	}
}

func (l Layout) withDefaults() Layout {
	l.Partitions = cmp.Or(l.Partitions, 8)
	l.Replicas = cmp.Or(l.Replicas, 1)
	l.MaxAge = cmp.Or(l.MaxAge, 72*time.Hour)
	l.MaxBytes = cmp.Or(l.MaxBytes, -1)
	l.BlobBytes = cmp.Or(l.BlobBytes, -1)
	return l
}

// settle is the layout that is in force once l has been declared over what is there.
func (l Layout) settle(have Layout) (Layout, error) {
	if l.Partitions != 0 && have.Partitions != 0 && have.Partitions != l.Partitions {
		return Layout{}, fmt.Errorf("natskit: declare streams: the log has %d partitions, %d asked for: the number cannot change", have.Partitions, l.Partitions)
	}
	l = l.or(have).withDefaults()
	return l, l.validate()
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

// IsLogStream reports whether a stream is one of the log's.
func IsLogStream(name string) bool {
	number, ok := strings.CutPrefix(name, streamPrefix)
	_, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil
}

// ErrNotDeclared reports that this JetStream holds no log yet.
var ErrNotDeclared = errors.New("it is not declared")

// Declare creates the streams and the buckets, or adjusts those that exist. It refuses to change the
// number of partitions: a run's packs would lie in two streams. Safe to call from many nodes.
func Declare(ctx context.Context, js jetstream.JetStream, l Layout) error {
	have, err := ReadLayout(ctx, js)
	if err != nil && !errors.Is(err, ErrNotDeclared) {
		return err
	}
	if l, err = l.settle(have); err != nil {
		return err
	}
	for _, cfg := range l.streams() {
		err := declare(ctx, js, "stream "+cfg.Name, func(ctx context.Context) error {
			_, err := js.CreateOrUpdateStream(ctx, cfg)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, b := range l.buckets() {
		err := declare(ctx, js, "bucket "+b.Bucket, func(ctx context.Context) error {
			_, err := js.CreateOrUpdateKeyValue(ctx, b)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// declareTry bounds one try to make or change a stream: its servers must find each other and elect a leader.
const declareTry = 5 * time.Second

// declare makes or changes what is safe to be made and changed again. Servers that have just started may not have
// found each other, and are asked until they have.
func declare(ctx context.Context, js jetstream.JetStream, what string, do func(context.Context) error) error {
	err := Repeat(ctx, js.Conn(), func(ctx context.Context, _ time.Duration) error {
		once, cancel := context.WithTimeout(ctx, declareTry)
		defer cancel()
		return do(once)
	})
	if err != nil {
		return fmt.Errorf("natskit: declare %s: %w", what, err)
	}
	return nil
}

// stream asks for a stream; ErrNotDeclared: there is none.
func stream(ctx context.Context, js jetstream.JetStream, name string) (s jetstream.Stream, err error) {
	err = Repeat(ctx, js.Conn(), func(ctx context.Context, _ time.Duration) (err error) {
		once, cancel := context.WithTimeout(ctx, Try)
		defer cancel()
		s, err = js.Stream(once, name)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream %s: %w", name, ErrNotDeclared)
	}
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	return s, nil
}

// Replicas returns how many copies of a stream there are to be. It asks once.
func Replicas(ctx context.Context, nc *nats.Conn, name string) (int, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("natskit: replicas of %s: %w", name, err)
	}
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("natskit: replicas of %s: %w", name, err)
	}
	return s.CachedInfo().Config.Replicas, nil
}

// streams are those of the log and the one of blobs.
func (l Layout) streams() []jetstream.StreamConfig {
	var list []jetstream.StreamConfig
	for p := range l.Partitions {
		list = append(list, l.stream(p))
	}
	return append(list, l.blobs())
}

func (l Layout) stream(p int) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
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
		// No duplicate window: publishing is compare-and-set, and the window costs memory.
		Duplicates: 100 * time.Millisecond,
		Metadata:   map[string]string{metaPartitions: strconv.Itoa(l.Partitions)},
	}
	if !l.Alone {
		// Copies of what has been stored, and of nothing else: a subscriber of the ingest subject
		// would also see publishes that the compare-and-set refuses.
		cfg.RePublish = &jetstream.RePublish{Source: schema.PartitionFilter(p), Destination: livePartition(p)}
	}
	return cfg
}

func livePartition(p int) string {
	return schema.LivePrefix + "." + strings.TrimPrefix(schema.PartitionFilter(p), schema.StorePrefix+".")
}

// Partitions reads how many partitions the log was declared with. It wraps ErrNotDeclared when
// there is no log.
func Partitions(ctx context.Context, js jetstream.JetStream) (int, error) {
	l, err := ReadLayout(ctx, js)
	return l.Partitions, err
}

// ReadLayout reads the layout of the log. It wraps ErrNotDeclared when there is no log.
func ReadLayout(ctx context.Context, js jetstream.JetStream) (Layout, error) {
	s, err := stream(ctx, js, StreamName(0))
	if err != nil {
		return Layout{}, fmt.Errorf("natskit: %w", err)
	}
	cfg := s.CachedInfo().Config
	n, err := strconv.Atoi(cfg.Metadata[metaPartitions])
	if err != nil || n < 1 {
		return Layout{}, fmt.Errorf("natskit: stream %s was not made by this product: no %s in its metadata",
			StreamName(0), metaPartitions)
	}
	l := Layout{Partitions: n, Replicas: cfg.Replicas, MaxAge: cfg.MaxAge, MaxBytes: cfg.MaxBytes}
	s, err = stream(ctx, js, BlobStream)
	if err == nil {
		l.BlobBytes = s.CachedInfo().Config.MaxBytes
	} else if !errors.Is(err, ErrNotDeclared) { // a log of before has none
		return Layout{}, fmt.Errorf("natskit: %w", err)
	}
	return l, nil
}

// Whole is Declared, once all of the streams are there, and the buckets. It wraps ErrNotDeclared when one is not. A
// bucket that lies in memory goes with a single server, and is made again by who opens it.
func Whole(ctx context.Context, js jetstream.JetStream) (Layout, error) {
	l, err := ReadLayout(ctx, js)
	if err != nil {
		return Layout{}, err
	}
	var names []string
	for _, cfg := range l.streams() {
		names = append(names, cfg.Name)
	}
	for _, b := range l.lasting() {
		names = append(names, bucketStream(b.Bucket))
	}
	for _, name := range names {
		if _, err := stream(ctx, js, name); err != nil {
			return Layout{}, fmt.Errorf("natskit: %w", err)
		}
	}
	return l, nil
}
