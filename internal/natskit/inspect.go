package natskit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StreamHealth is one stream of the log, of the blobs or of a bucket, as its leader describes it.
type StreamHealth struct {
	Name    string
	Missing bool     // the servers answer that there is no such stream
	Silent  error    // why its state is not known, as when it has no leader; nil: it is known
	Wrong   []string // settings with which events are lost or refused, "name: have → want"
	Odd     []string // settings that differ from those of the other streams, which lose nothing by themselves
	Peers   []Peer   // its replicas beside the leader; none without a cluster

	Log  bool   // it is one of the log's
	Last uint64 // position of its newest message
}

// Peer is a server that holds a replica of a stream.
type Peer struct {
	Name    string
	Current bool          // it has what the leader has
	Offline bool          // it does not answer the cluster
	Lag     uint64        // operations that it lacks
	Active  time.Duration // since the leader has heard from it
}

// Lagging returns what is wrong with the stream's replicas, in words: that they are too few, or which are not current.
func (h *StreamHealth) Lagging() (texts []string) {
	for _, p := range h.Peers {
		switch {
		case p.Offline:
			texts = append(texts, fmt.Sprintf("%s: the replica on %s is offline", h.Name, p.Name))
		case !p.Current:
			texts = append(texts, fmt.Sprintf("%s: the replica on %s is not current: it lacks %d operations, and was heard from %v ago",
				h.Name, p.Name, p.Lag, p.Active.Round(time.Millisecond)))
		}
	}
	return texts
}

// Inspect asks for every stream that a log of this layout has, and returns them in the order of their names: those of
// the log, that of blobs, those of buckets. Buckets in memory and that of taps are left out: who opens one makes it
// again, or finds out. Settings that migrate may change (replicas, window, bytes) are compared with those of the log's
// first stream; replicas may not be fewer than the layout has. It asks each stream once, all at the same time, and is
// safe for concurrent use.
func Inspect(ctx context.Context, js jetstream.JetStream, known Layout) []StreamHealth {
	known = known.withDefaults()
	var wanted []jetstream.StreamConfig
	wanted = append(wanted, known.streams()...)
	for _, b := range known.lasting() {
		wanted = append(wanted, bucketConfig(b))
	}
	out := make([]StreamHealth, len(wanted))
	have := make([]jetstream.StreamConfig, len(wanted))
	var wg sync.WaitGroup
	for i := range wanted {
		out[i].Name, out[i].Log = wanted[i].Name, i < known.Partitions
		wg.Go(func() { have[i] = out[i].ask(ctx, js) })
	}
	wg.Wait()
	for i := range out {
		if h := &out[i]; have[i].Name != "" {
			h.judge(&have[i], &wanted[i], &have[0])
		}
	}
	return out
}

// bucketConfig is the stream of a bucket, as far as it is compared.
func bucketConfig(b jetstream.KeyValueConfig) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: bucketStream(b.Bucket), Subjects: []string{"$KV." + b.Bucket + ".>"}, Retention: jetstream.LimitsPolicy,
		Storage: b.Storage, Replicas: b.Replicas, MaxAge: b.TTL, MaxMsgsPerSubject: int64(b.History),
		Discard: jetstream.DiscardNew, AllowDirect: true,
	}
}

// ask fills in what the leader says, and returns the settings.
func (h *StreamHealth) ask(ctx context.Context, js jetstream.JetStream) (cfg jetstream.StreamConfig) {
	s, err := js.Stream(ctx, h.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		h.Missing = true
		return cfg
	}
	if err != nil {
		h.Silent = fmt.Errorf("%s: no answer, as without a leader: %w", h.Name, err)
		return cfg
	}
	info := s.CachedInfo()
	h.Last = info.State.LastSeq
	if info.Cluster == nil {
		return info.Config
	}
	if info.Cluster.Leader == "" {
		h.Silent = fmt.Errorf("%s: it has no leader", h.Name)
	}
	for _, p := range info.Cluster.Replicas {
		h.Peers = append(h.Peers, Peer{Name: p.Name, Current: p.Current, Offline: p.Offline, Lag: p.Lag, Active: p.Active})
	}
	return info.Config
}

// Missing reports whether the servers answer that there is no such stream. It asks once, for a Try at most: no answer
// is none.
func Missing(ctx context.Context, nc *nats.Conn, stream string) bool {
	ctx, cancel := context.WithTimeout(ctx, Try)
	defer cancel()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.Stream(ctx, stream)
	}
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

// judge compares the settings with those that the stream is to have; first are those of the log's first stream.
func (h *StreamHealth) judge(have, want, first *jetstream.StreamConfig) {
	must := *want
	must.Replicas, must.MaxAge, must.MaxBytes, must.Duplicates = have.Replicas, have.MaxAge, have.MaxBytes, have.Duplicates
	h.Wrong = differences(*have, must).Fields
	odd := Change{}
	odd.noteDifference("replicas", have.Replicas, max(want.Replicas, first.Replicas))
	if h.Log && first.Name != "" {
		odd.noteDifference("window", have.MaxAge, first.MaxAge)
		odd.noteDifference("max bytes", have.MaxBytes, first.MaxBytes)
	}
	h.Odd = odd.Fields
}

// Command returns the command that makes what a log of this layout lacks.
func (l Layout) Command() string {
	text := fmt.Sprintf("agentstream migrate --partitions %d --replicas %d", cmp.Or(l.Partitions, 8),
		cmp.Or(l.Replicas, 1))
	if l.MaxAge > 0 {
		text += " --window " + l.MaxAge.String()
	}
	return text
}
