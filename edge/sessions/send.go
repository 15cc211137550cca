package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/dialect/qoder"
	"agentstream/producers"
	"agentstream/schema"
)

// maxSent bounds the events of one request.
const maxSent = 256

// sent is the body of POST /sessions/{id}/events. Fields that are not known are passed over.
type sent struct {
	Events []json.RawMessage `json:"events"`
}

// send appends what a client says to a session and answers with the events as every reader gets them. All are
// checked before anything is stored. Events for one thread that follow each other are stored all or none; of a
// request for several threads a beginning may be stored when the answer is an error that says so, and a repeat
// with the same Idempotency-Key completes it.
func (a routes) send(ctx context.Context, x *edge.Exchange) error {
	opt, err := x.Keyed()
	if err != nil {
		return err
	}
	body, err := x.Body(bodyTypes...)
	if err != nil {
		return err
	}
	said, err := readSent(body)
	if err != nil {
		return err
	}
	run := x.Path("run")
	_, p, err := newest(ctx, x, run, qoder.Request(run, ""))
	if err != nil {
		return err
	}
	events, err := translate(p, run, said)
	if err != nil {
		return err
	}
	replies := list{limit: len(events)}
	for i, group := range byLane(events) {
		c := change{run: run, events: group, opt: opt, allow: alive}
		if opt.IdempotencyKey != "" {
			c.opt.IdempotencyKey += "\x00" + strconv.Itoa(i)
		}
		receipt, err := store(ctx, x, c)
		if err == nil {
			err = stored(ctx, x, &replies, group[0].ChildID, receipt)
		}
		if err != nil {
			return partly(err, len(replies.items), len(events))
		}
	}
	x.Reply(http.StatusOK, append(replies.data([]byte(`{"data":[`)), `]}`...))
	return nil
}

func readSent(body []byte) ([]json.RawMessage, error) {
	var in sent
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("body is not the JSON object that is expected: %w", dialect.ErrBadRequest)
	}
	if len(in.Events) == 0 || len(in.Events) > maxSent {
		return nil, fmt.Errorf("events is not an array of 1 to %d events: %w", maxSent, dialect.ErrBadRequest)
	}
	return in.Events, nil
}

// translate makes all events and holds each to what the log takes.
func translate(p *qoder.Projector, run string, said []json.RawMessage) ([]schema.Event, error) {
	events := make([]schema.Event, len(said))
	for i, raw := range said {
		e, err := p.Command(raw)
		if err != nil {
			return nil, fmt.Errorf("events[%d]: %w", i, err)
		}
		if e.Actor == "" {
			e.Actor = "user"
		}
		if err := e.Prepare(run); err != nil {
			return nil, fmt.Errorf("events[%d]: %w", i, err)
		}
		events[i] = e
	}
	return events, nil
}

// byLane cuts events into runs of those for one lane, in their order.
func byLane(events []schema.Event) (groups [][]schema.Event) {
	for from := 0; from < len(events); {
		to := from + 1
		for to < len(events) && events[to].ChildID == events[from].ChildID {
			to++
		}
		groups = append(groups, events[from:to])
		from = to
	}
	return groups
}

// stored adds the frames of what was stored for a lane, as those who read its thread get them.
func stored(ctx context.Context, x *edge.Exchange, answer *list, child string, receipt producers.Receipt) error {
	run, thread := x.Path("run"), ""
	if child != "" {
		thread = qoder.ThreadID(run, child)
	}
	p, err := at(ctx, x, run, receipt.First-1, qoder.Request(run, thread))
	if err != nil {
		return err
	}
	var out dialect.Frames
	for r, err := range x.Records(ctx, run, receipt.First-1, receipt.Last) {
		if err != nil {
			return err
		}
		out.Reset()
		if err := p.Project(&out, r); err != nil {
			return err
		}
		for _, f := range out.List {
			if saidByClient(f.Event) {
				answer.add(string(f.Token), bytes.Clone(f.Data))
			}
		}
	}
	return nil
}

// saidByClient tells what a client has sent from what its record brings about besides.
func saidByClient(typ []byte) bool {
	return strings.HasPrefix(string(typ), "user.") || string(typ) == "system.message"
}

// partly says of an error that a beginning is stored all the same.
func partly(err error, stored, of int) error {
	if stored == 0 || errors.As(err, new(*producers.PartialError)) {
		return err
	}
	return &producers.PartialError{Stored: stored, Of: of, Err: err}
}
