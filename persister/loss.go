package persister

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"agentstream/schema"
)

// Loss is a range of messages of a stream of the log that are not in it any more and were never stored. It is recorded
// for ever.
type Loss struct {
	Stream   string
	Identity string // of the stream that had them; see Offset
	First    uint64 // their positions
	Last     uint64 // 0: it is not known how many there were
	Reason   string
	Found    time.Time
	Restored time.Time // of a LossBefore: when all objects had been read that may hold its runs; zero: they were not
}

// Reasons of losses.
const (
	LossDropped = "dropped" // the log dropped messages after what is stored: they were too old, or were purged
	LossBefore  = "before"  // the same, where nothing was stored yet: the archive is new, or was lost
	LossRenewed = "renewed" // the log was made again: what it had after what is stored is not known
)

// Open reports whether something of the archive may be missing because of the loss.
func (l *Loss) Open() bool { return l.Restored.IsZero() }

// Messages returns the number of messages, and false when it is not known.
func (l *Loss) Messages() (n uint64, known bool) {
	if l.Last < l.First {
		return 0, false
	}
	return l.Last - l.First + 1, true
}

// String returns what is lost, in words.
func (l *Loss) String() string {
	n, known := l.Messages()
	switch {
	case !known:
		return fmt.Sprintf("%s: the log was made again when %d messages of it were stored: what it had after them is lost, and how much is not known", l.Stream, l.First-1)
	case l.Reason == LossBefore && !l.Open():
		return fmt.Sprintf("%s: %d messages had left the log before anything was stored here; the runs of all objects are restored", l.Stream, n)
	case l.Reason == LossBefore:
		return fmt.Sprintf("%s: %d messages had left the log before anything was stored here (positions %d to %d)",
			l.Stream, n, l.First, l.Last)
	}
	return fmt.Sprintf("%s: %d messages left the log before they were stored (positions %d to %d): they are lost, unless an object has them", l.Stream, n, l.First, l.Last)
}

// RunLoss is a range of events of a run that are neither in the log nor in the archive. It is recorded for ever.
type RunLoss struct {
	Key         schema.RunKey
	First, Last schema.Seq
	Reason      string
	Found       time.Time
}

// Reasons of losses of runs, beside those of losses.
const LossObject = "object" // the rows had left the tables, and the object that the tables name does not exist

// String returns what is lost, in words.
func (l *RunLoss) String() string {
	return fmt.Sprintf("run %s: events %d to %d are neither in the log nor in the archive", l.Key, l.First, l.Last)
}

// Salvager saves what may be saved before a pipeline goes on after a loss.
type Salvager interface {
	// Salvage is called before anything is stored after a loss, and before anything at all is stored of a stream.
	// It restores the runs of the stream that objects have and the store has not, and returns which events of runs are
	// lost, and whether there are objects. It may be called again, and by several processes.
	Salvage(ctx context.Context, stream string) (runs []RunLoss, objects bool, err error)
}

// Dropper is implemented by a Queue that knows which messages its stream has dropped before they were read.
type Dropper interface {
	// LastDropped returns the position of the newest message that was dropped, 0 when none was found since the last call.
	// It may be called by any goroutine.
	LastDropped() uint64
}

// lossOf returns the loss of what lies between an offset and the position of the newest message that was dropped.
func lossOf(at Offset, dropped uint64, before bool) Loss {
	l := Loss{Stream: at.Stream, Identity: at.Identity, First: at.Position + 1, Last: dropped, Reason: LossDropped}
	if before {
		l.Reason = LossBefore
	}
	return l
}

// checkDropped notes what the queue has found, and reports whether messages after the stored offset were
// dropped.
func (p *pipeline) checkDropped() bool {
	d, ok := p.queue.(Dropper)
	if !ok {
		return false
	}
	newest := d.LastDropped()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = max(p.dropped, newest)
	return p.dropped > p.offset.Position
}

// lose records what was lost before at, where a session is to begin, and returns where it begins instead. stored is the
// offset in the store.
func (p *pipeline) lose(ctx context.Context, stored, at Offset) (t Transfer, err error) {
	t = Transfer{From: stored, To: at, Owner: p.share.me}
	if stored.Identity != "" && stored.Identity != at.Identity {
		t.Losses = append(t.Losses, Loss{Stream: at.Stream, Identity: stored.Identity, First: stored.Position + 1,
			Reason: LossRenewed})
	}
	p.setOffset(at)
	p.mu.Lock()
	p.dropped = 0
	p.mu.Unlock()
	lost := p.checkDropped()
	if !lost && len(t.Losses) == 0 && stored.Identity != "" {
		return t, nil
	}
	objects := false
	if s := p.cfg.Salvage; s != nil {
		if t.RunLosses, objects, err = s.Salvage(ctx, at.Stream); err != nil {
			return t, fmt.Errorf("persister: save what objects have of %s: %w", at.Stream, err)
		}
	}
	if lost {
		p.mu.Lock()
		l := lossOf(at, p.dropped, stored.Identity == "")
		p.mu.Unlock()
		if l.Reason == LossBefore && objects && len(t.RunLosses) == 0 {
			l.Restored = p.cfg.Now()
		}
		level := slog.LevelError
		if p.cfg.Replaces {
			level = slog.LevelInfo
		}
		p.cfg.Logger.Log(ctx, level, p.cfg.Role+": messages have left the log before they were stored", "stream",
			l.Stream, "first", l.First, "last", l.Last, "reason", l.Reason)
		t.Losses = append(t.Losses, l)
		t.To.Position, t.To.StoredAt = l.Last, time.Time{}
	}
	return t, nil
}
