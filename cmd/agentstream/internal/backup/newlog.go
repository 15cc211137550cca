package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/internal/natskit"
	"agentstream/persister/postgres/tables"
)

// errLogNeeded reports that a restore without the log would lose events.
var errLogNeeded = errors.New("--new-log: the tables of the backup lack events of its log; stop what writes, wait until persist has stored all of it, and make another backup")

// dropLog takes out of a backup the streams that belong to a log: its own and the places of taps in it. It refuses where
// the tables lack something of the log.
func (b *Contents) dropLog() error {
	if b.Tables == nil {
		return errLogNeeded
	}
	for i := range b.Streams {
		s := &b.Streams[i]
		if natskit.IsLogStream(s.Stream) && s.Holds.Last != b.Tables.Stored[s.Stream] {
			return fmt.Errorf("%s: message %d of %d: %w", s.Stream, b.Tables.Stored[s.Stream], s.Holds.Last, errLogNeeded)
		}
	}
	b.Streams = slices.DeleteFunc(b.Streams, func(s savedSnapshot) bool {
		return natskit.IsLogStream(s.Stream) || strings.HasSuffix(s.Stream, natskit.TapsBucket)
	})
	return nil
}

// forgetLog has restored tables forget how far they have a log that is not restored. Tables that have gone on since the
// backup are refused: they have another log.
func (c *RestoreCmd) forgetLog(ctx context.Context, b *Contents) error {
	if !c.NewLog {
		return nil
	}
	s, done, err := archive.OpenStore(ctx, c.Postgres, "", slog.New(slog.DiscardHandler)) // it warns of administrators
	if err != nil {
		return err
	}
	offsets, err := s.Offsets(ctx)
	done()
	if err != nil {
		return err
	}
	for _, o := range offsets {
		if o.Position != b.Tables.Stored[o.Stream] {
			return fmt.Errorf("--new-log: the tables have %s up to %d, those of the backup up to %d: they are not the backup's",
				o.Stream, o.Position, b.Tables.Stored[o.Stream])
		}
	}
	return tables.ForgetLog(ctx, c.Postgres)
}
