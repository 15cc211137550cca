package tap

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"agentstream/schema"
)

// Event is one event of the log. Its slices must not be changed, nor kept after Write has returned.
type Event struct {
	Run   schema.RunKey
	Child string // lane; "" is the run itself
	Seq   schema.Seq
	ID    string
	Type  string
	TS    time.Time
	Line  []byte // the event as clients get it, without line feed
}

// Key returns tenant/run/seq, by which a sink recognizes an event that comes again.
func (e *Event) Key() string {
	return e.Run.Tenant + "/" + e.Run.Run + "/" + strconv.FormatInt(int64(e.Seq), 10)
}

// WithTenant appends the event's line with its tenant as the first member, which a line itself does not have.
func (e *Event) WithTenant(b []byte) []byte {
	b = append(b, `{"tenant":"`...)
	b = append(b, e.Run.Tenant...) // of an alphabet without quotes
	b = append(b, `",`...)
	return append(b, bytes.TrimPrefix(e.Line, []byte{'{'})...)
}

// Receiver is a sink: it receives events. It is safe for concurrent use.
type Receiver interface {
	// Write delivers a batch: events of one partition, those of a run in order. It returns after all are delivered, or
	// refused for good. After an error it is called again with the batch, or with a part of it. An error that wraps
	// persister.ErrPoison says that an event of the batch is the reason: the batch is divided until it is found.
	Write(ctx context.Context, batch []Event) (refused []Refusal, err error)
	// Close ends the sink. Nothing is written after it.
	Close() error
}

// Confirmer is a sink that learns when a tap's place has moved: what was written of the runs will not be written again,
// but by a tap that is made anew. A tap calls it once for what it has written; an error is logged.
type Confirmer interface {
	Receiver
	Confirm(ctx context.Context, runs []schema.RunKey) error
}

// Confirm confirms what was written of runs to a sink that is a Confirmer.
func Confirm(ctx context.Context, sink Receiver, runs []schema.RunKey) error {
	c, ok := sink.(Confirmer)
	if !ok || len(runs) == 0 {
		return nil
	}
	return c.Confirm(ctx, runs)
}

// AppendRuns appends the runs of events, each once for those that follow one another.
func AppendRuns(runs []schema.RunKey, events []Event) []schema.RunKey {
	for i := range events {
		if n := len(runs); n == 0 || runs[n-1] != events[i].Run {
			runs = append(runs, events[i].Run)
		}
	}
	return runs
}

// Refusal is an event that a sink does not take, however often it is tried.
type Refusal struct {
	Event  int // index in the batch
	Detail string
}

// Letter is a dead letter of a tap: an event that its sink has refused, or what the log has that is no event.
type Letter struct {
	Tenant   string    `json:"tenant,omitempty"`
	Run      string    `json:"run_id,omitempty"`
	Child    string    `json:"child_id,omitempty"`
	Seq      int64     `json:"seq,omitempty"`
	Last     int64     `json:"last_seq,omitempty"` // of a range that is gone; 0: one event
	Type     string    `json:"type,omitempty"`
	Stream   string    `json:"stream,omitempty"`
	Position uint64    `json:"position,omitempty"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	At       time.Time `json:"at"`
	Line     []byte    `json:"line,omitempty"`

	ID string `json:"-"` // set by who lists them
}

// ErrLettersFull reports that a tap has as many dead letters as are kept. It waits until somebody has retried or dropped
// some: what is refused is never lost without a word.
var ErrLettersFull = errors.New("the tap waits: it has as many dead letters as are kept; retry or drop some")

// Reasons of letters, beside those of persister.DeadLetter.
const (
	ReasonExpired = "expired" // the events are neither in the log nor in the archive
)

// letterOf returns the letter of an event.
func letterOf(e *Event, reason, detail string, now time.Time) Letter {
	return Letter{Tenant: e.Run.Tenant, Run: e.Run.Run, Child: e.Child, Seq: int64(e.Seq), Type: e.Type,
		Reason: reason, Detail: detail, At: now, Line: e.Line}
}

// Event returns the event of a letter, to deliver it again; false for a letter without one.
func (l *Letter) Event() (Event, bool) {
	r, err := schema.ScanLine(l.Line)
	if err != nil || l.Run == "" {
		return Event{}, false
	}
	id, text, _ := r.Envelope()
	ts, _ := time.Parse(time.RFC3339Nano, string(text)) // zero where the line has none
	return Event{Run: schema.RunKey{Tenant: l.Tenant, Run: l.Run}, Child: l.Child, Seq: schema.Seq(l.Seq), ID: string(id),
		Type: l.Type, TS: ts, Line: l.Line}, true
}
