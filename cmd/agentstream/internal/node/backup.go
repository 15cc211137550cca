package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/internal/natskit"
)

// LastBackup reads when the last backup was made, for a metric. Make it with NewLastBackup.
type LastBackup struct {
	js  jetstream.JetStream
	age *process.BackupAge
	log *slog.Logger
}

// NewLastBackup returns a part that shows how old the last backup is.
func NewLastBackup(js jetstream.JetStream, m *process.Metrics, log *slog.Logger) *LastBackup {
	return &LastBackup{js: js, age: m.BackupAge(), log: log}
}

// backupEvery is how often the time of the last backup is read.
const backupEvery = 30 * time.Second

// Run reads the time until ctx ends. While it cannot be read, what was read last counts.
func (b *LastBackup) Run(ctx context.Context) error {
	tick := time.NewTicker(backupEvery)
	defer tick.Stop()
	for {
		if err := b.read(ctx); err != nil && ctx.Err() == nil {
			b.log.Debug("backup: the time of the last one cannot be read", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *LastBackup) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backupEvery)
	defer cancel()
	bucket, err := b.js.KeyValue(ctx, natskit.TapsBucket)
	if err != nil {
		return err
	}
	entry, err := bucket.Get(ctx, natskit.BackupKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, string(entry.Value()))
	if err != nil {
		return err
	}
	b.age.Set(at)
	return nil
}
