package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/postgres"
	"agentstream/persister/sqlite"
)

// offsets reads how far the streams are stored, from a database, or from the folder of a dev server.
func offsets(ctx context.Context, archive string) (map[string]uint64, error) {
	all, err := storedOffsets(ctx, archive)
	at := make(map[string]uint64, len(all))
	for _, o := range all {
		at[o.Stream] = o.Position
	}
	return at, err
}

func storedOffsets(ctx context.Context, archive string) (all []persister.StoredOffset, err error) {
	if _, err := os.Stat(archive); err == nil {
		s, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(archive, "archive.db"), Readers: 1})
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return s.Offsets(ctx)
	}
	s, err := postgres.Open(ctx, postgres.Config{DSN: archive, MaxConns: 1})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Offsets(ctx)
}

// pending is how many messages the log holds that are not persisted.
func pending(ctx context.Context, url, archive string) (left uint64, err error) {
	all, err := storedOffsets(ctx, archive)
	if err != nil {
		return 0, err
	}
	at := make(map[string]persister.Offset, len(all))
	for _, o := range all {
		at[o.Stream] = o.Offset
	}
	nc, err := natskit.Dial(url, "pending")
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	n, err := natskit.Partitions(ctx, js)
	if err != nil {
		return 0, err
	}
	for p := range n {
		s, err := js.Stream(ctx, natskit.StreamName(p))
		if err != nil {
			return 0, err
		}
		info, stored := s.CachedInfo(), at[natskit.StreamName(p)]
		if stored.Identity != info.Created.UTC().Format(time.RFC3339Nano) { // of a stream that is no more
			stored.Position = 0
		}
		if st := info.State; st.Msgs > 0 && st.LastSeq > stored.Position {
			left += st.LastSeq - max(st.FirstSeq-1, stored.Position)
		}
	}
	return left, nil
}
