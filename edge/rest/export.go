package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"agentstream/edge/audit"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/edge/transport/jsonl"
	"agentstream/fanout"
	"agentstream/schema"
)

// export writes a run as JSONL: every stored event with after < seq ≤ through as one line,
// byte-identical to the log, ascending; by default the whole run up to the newest event at the time of
// the request, which the header Last-Seq names. It is filtered by ?types=, ?child= and ?nested= as
// streams are, and compressed as Accept-Encoding allows.
//
// A body that ends cleanly is complete (mode C); in all other cases it is broken off. A range whose
// beginning is no longer kept is refused before anything is sent.
func (a *API) export(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	e, err := readExport(c.Request)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(c.Request.Context())
	defer end(nil)
	l := &live.Life{Caller: c.Caller, Cancel: end} // by whom it is ended when its credential is taken back
	if err := a.cfg.Live.Enter(l); err != nil {
		return err
	}
	defer a.cfg.Live.Leave(l)
	e.a, e.c, e.src.Key, e.coding = a, c, key, jsonl.Negotiate(c.Request.Header.Values("Accept-Encoding"))
	e.patience = time.AfterFunc(a.cfg.LogTimeout, func() {
		end(fmt.Errorf("export %s: no answer in %v: %w", key, a.cfg.LogTimeout, fanout.ErrUnavailable))
	})
	defer e.patience.Stop()
	return live.EndCause(ctx, e.run(ctx))
}

// exporting is one export under way.
type exporting struct {
	a        *API
	c        *protocol.Call
	src      runs.Source
	coding   jsonl.Coding
	patience *time.Timer // runs while the log is waited for

	own            *runs.OwnNumbers // of a child; nil for a root
	filter         shape.Filter
	after, through schema.Seq // through 0: the newest event
	sink           *jsonl.LineSink
}

func readExport(r *http.Request) (*exporting, error) {
	q, err := protocol.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	e := new(exporting)
	if e.after, err = q.Seq("after", 0); err != nil {
		return nil, err
	}
	if e.through, err = q.Seq("through", 0); err != nil {
		return nil, err
	}
	if e.through > 0 && e.through < e.after {
		return nil, fmt.Errorf("through %d is before after %d: %w", e.through, e.after, dialect.ErrBadRequest)
	}
	e.filter, err = filterOf(q)
	return e, err
}

func (e *exporting) run(ctx context.Context) error {
	name := e.src.Key.Run
	src, pos, err := e.a.cfg.Runs.WhereIs(ctx, e.src.Key)
	if err != nil {
		return err
	}
	if ahead := max(e.after, e.through); ahead > pos.Last {
		return &ends.PositionError{Last: pos.Last, Err: fmt.Errorf("position %d: %w", ahead, fanout.ErrFuture)}
	}
	if e.through == 0 {
		e.through = pos.Last
	}
	if e.c.Request.Method != http.MethodHead {
		if err := e.c.Record(ctx, audit.Exported, name, "", ""); err != nil {
			return err
		}
	}
	if e.src = src; src.Child != "" {
		e.own = &runs.OwnNumbers{Child: src.Child}
	}
	h := e.c.Header()
	h.Set("Content-Disposition", `attachment; filename="`+name+`.jsonl"`) // ids need no escaping
	h.Set("Last-Seq", e.through.String())
	if err := e.body(ctx, pos.Last); err != nil {
		if !e.c.HasAnswered() { // the error is an answer of its own
			h.Del("Content-Disposition")
			h.Del("Last-Seq")
		}
		return err
	}
	return nil
}

// body writes the range. The walk is bounded by the newest event and not by the range, so that it
// meets what is kept behind a hole. Nothing is sent before the first pack is there: until then a
// refusal can be sent.
func (e *exporting) body(ctx context.Context, newest schema.Seq) error {
	defer func() {
		if e.sink != nil {
			e.sink.Close()
		}
	}()
	pos, from := e.after, e.after
	if e.own != nil { // it is counted from the root's first event
		from, newest = 0, schema.MaxSeq
	}
	if pos < e.through {
		for p, err := range e.a.cfg.Runs.Hub.Packs(ctx, e.src.Key, from, newest) {
			if err != nil {
				return err
			}
			e.patience.Stop()
			if e.c.Request.Method == http.MethodHead {
				return e.headers()
			}
			slot, err := e.a.cfg.Runs.Slot(ctx, e.src.Key.Tenant)
			if err != nil {
				return err
			}
			pos, err = e.pack(&p, pos)
			slot.Release()
			if err != nil {
				return err
			}
			if pos == e.through {
				break
			}
			e.patience.Reset(e.a.cfg.LogTimeout)
		}
	}
	e.patience.Stop()
	if pos < e.through {
		return fmt.Errorf("events end at %d, %d exists: %w", pos, e.through, fanout.ErrUnavailable)
	}
	if e.c.Request.Method == http.MethodHead {
		return e.headers()
	}
	if err := e.open(); err != nil {
		return err
	}
	return e.sink.Finish()
}

// pack writes what is wanted of a pack and returns the seq of the last event that it looked at. The
// first one is pushed out: a compressed body that is cut before its first byte looks empty to some
// decoders, later ones look cut.
func (e *exporting) pack(p *schema.Pack, pos schema.Seq) (schema.Seq, error) {
	first := e.sink == nil
	if err := e.open(); err != nil {
		return pos, err
	}
	behind := pos
	if e.own != nil {
		behind = 0
	}
	for r, err := range p.Records(behind) {
		if err != nil {
			return pos, err
		}
		if e.own != nil {
			var mine bool
			if r, mine = e.own.Renumber(r); !mine || r.Seq <= pos {
				continue
			}
		}
		if r.Seq > e.through {
			break
		}
		if pos = r.Seq; !e.filter.Match(r) {
			continue
		}
		if err := e.sink.WriteLine(r.Line); err != nil {
			return pos, err
		}
		e.c.Seq = r.Seq
		e.c.Events++
	}
	if first {
		return pos, e.sink.Flush()
	}
	return pos, nil
}

func (e *exporting) open() (err error) {
	if e.sink == nil {
		e.sink, err = e.a.jsonl.Open(e.c.Writer, e.coding)
	}
	return err
}

func (e *exporting) headers() error {
	jsonl.SetHeader(e.c.Header(), e.coding)
	e.c.Writer.WriteHeader(http.StatusOK)
	return nil
}
