package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/internal/natskit"
)

// LastBackup reads when the last backup was made, for a metric. Make it with NewLastBackup.
type LastBackup struct {
	nc  *nats.Conn
	age *process.BackupAge
	log *slog.Logger
}

// NewLastBackup returns a part that shows how old the last backup is.
func NewLastBackup(nc *nats.Conn, m *process.Metrics, log *slog.Logger) *LastBackup {
	return &LastBackup{nc: nc, age: m.BackupAge(), log: log}
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
	at, err := natskit.LastBackup(ctx, b.nc)
	if err == nil && !at.IsZero() {
		b.age.Set(at)
	}
	return err
}
