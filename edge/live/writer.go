package live

import (
	"errors"
	"math"
	"slices"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/state"
	"agentstream/edge/transport"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// writer makes frames of what readers return and hands them to the sink.
type writer struct {
	ss      *Session
	sink    transport.Sink
	project dialect.Projector
	frames  dialect.Frames
	flushed time.Time
	shown   int        // frames since the last flush
	last    bool       // the stream is over with them
	spared  bool       // the client was: its cursor stays where it had everything
	lent    bool       // project is a chunk's, which must not be fed
	current bool       // the client was sent that it has everything
	at      schema.Seq // of the record whose frames are written
	slot    *fair.Slot // of the history that is written; nil: it is live
}

// errOver reports that the stream has ended with its last frame.
var errOver = errors.New("the last frame was sent")

// cleanly makes the end that a frame has brought the clean one that it is.
func cleanly(err error) error {
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// opening writes the frames that the stream begins with.
func (w *writer) opening() error {
	p, ok := w.project.(dialect.Opener)
	if !ok || w.ss.merged != nil { // others may have gone on with it: its handler has answered
		return nil
	}
	of := w.ss.again
	err := w.apart(func(out *dialect.Frames) error {
		err := p.Open(out, w.ss.After)
		if of == nil {
			of = &replayRange{out.Again, w.ss.After, math.MaxInt}
		}
		return err
	})
	if err != nil || of.from == 0 {
		return err
	}
	return w.replayPrefix(*of)
}

// apart writes frames that are of no record.
func (w *writer) apart(add func(*dialect.Frames) error) error {
	defer w.frames.Reset()
	if err := add(&w.frames); err != nil {
		return err
	}
	list := w.frames.List
	if w.ss.bound.Transport != dialect.SSE {
		list = slices.DeleteFunc(list, func(f dialect.Frame) bool { return f.Comment })
	}
	if err := w.put(list); err != nil {
		return err
	}
	return w.flush(time.Now(), 0)
}

// replayRange is a part of a run: from a record on, 0 is none of it, up to another one, of which only so many
// frames count.
type replayRange struct {
	from, through schema.Seq
	frames        int
}

// replayPrefix writes the frames of a range that are marked Again. It may be long: nothing of it is kept.
func (w *writer) replayPrefix(of replayRange) error {
	ss := w.ss
	p, err := ss.live.cfg.State.Projector(ss.ctx, ss.Src.Key, ss.bound.Dialect, of.from-1, ss.req)
	if err != nil {
		return err
	}
	begun := time.Now()
	for r, err := range ss.live.cfg.Runs.Replay(ss.ctx, ss.Src, of.from-1, of.through) {
		if err != nil {
			return err
		}
		if err := p.Project(&w.frames, r); err != nil {
			return state.ProjectError(r, err)
		}
		if r.Seq == of.through && len(w.frames.List) > of.frames {
			w.frames.List = w.frames.List[:of.frames]
		}
		if err := w.write(again(w.frames.List)); err != nil {
			return err
		}
		w.frames.Reset()
		if w.shown >= prefixFrames || w.last {
			if err := w.flush(begun, 0); err != nil {
				return err
			}
			begun = time.Now()
		}
	}
	return w.flush(begun, 0)
}

// prefixFrames are flushed together.
const prefixFrames = 256

// again keeps the frames that are given again, in their place. Only a last one keeps its token.
func again(list []dialect.Frame) []dialect.Frame {
	kept := list[:0]
	for _, f := range list {
		if !f.Again {
			continue
		}
		if !f.Last {
			f.Token = nil
		}
		kept = append(kept, f)
	}
	return kept
}

// lead writes what the client has not of the last record that it has.
func (w *writer) lead() error {
	list := w.ss.prefix
	w.ss.prefix = nil
	if len(list) == 0 {
		return nil
	}
	w.at = w.ss.After
	if err := w.write(list); err != nil {
		return err
	}
	w.ss.c.Seq = w.at
	return w.flush(time.Now(), 0)
}

// prelude writes the frames that were made for this client alone.
func (w *writer) prelude() error {
	list := w.ss.Prelude
	w.ss.Prelude = nil
	if len(list) == 0 {
		return nil
	}
	return w.apart(func(out *dialect.Frames) error {
		out.List = append(out.List, list...)
		return nil
	})
}

// writeCaughtUp writes once that the client has all that there was when its stream was opened.
func (w *writer) writeCaughtUp() error {
	last := max(w.ss.After, w.ss.c.Seq)
	if w.current || w.ss.bound.CaughtUp == nil || last < w.ss.Pos.Last {
		return nil
	}
	w.current = true
	return w.apart(func(out *dialect.Frames) error {
		out.Add(w.ss.bound.CaughtUp(last))
		return nil
	})
}

// rest writes what is left of ready frames.
func (w *writer) rest(b []byte) error {
	begun := time.Now()
	w.flushed = begun
	if len(b) == 0 {
		return nil
	}
	if err := w.ss.direct.Rest(b); err != nil {
		return err
	}
	if _, err := w.sink.Flush(); err != nil { // its bytes were counted when they were ready
		return err
	}
	w.flushed = time.Now()
	w.ss.read.wrote(w.flushed.Sub(begun))
	return nil
}

// send writes a result: all of its frames, then one flush.
func (w *writer) send(p readResult) error {
	c := w.ss.c
	events := c.Events
	begun := time.Now()
	w.slot = p.slot
	defer w.slot.Release()
	if p.chunk != nil {
		if err := w.chunk(p); err != nil {
			return err
		}
		return w.flush(begun, c.Events-events)
	}
	for i := range p.batch.Packs {
		for r, err := range p.batch.Packs[i].Records(p.batch.After) {
			if err != nil {
				return err
			}
			if err := w.record(r); err != nil {
				return err
			}
		}
	}
	for i := range p.records {
		w.spared = w.spared || p.records[i].Spared
		if err := w.record(p.records[i].Record); err != nil {
			return err
		}
	}
	err := w.flush(begun, c.Events-events)
	if err == nil && p.slot == nil && len(p.records) > 0 {
		w.ss.live.cfg.Hooks.noteDelivery(w.ss.bound.DialectName, p.records[0].Record)
	}
	return err
}

// chunk writes a chunk's frames.
func (w *writer) chunk(p readResult) error {
	c := p.chunk
	if len(p.batch.Packs) > 0 {
		if err := c.fill(w.own().(dialect.Stateful), p.batch); err != nil {
			return err
		}
	}
	w.at = c.last
	if err := w.write(c.list); err != nil {
		return err
	}
	w.project, w.lent = c.p, true
	w.ss.c.Seq = c.last
	w.ss.c.Events += c.events
	return nil
}

// own returns the projector, as one that may be fed.
func (w *writer) own() dialect.Projector {
	if w.lent {
		w.project, w.lent = w.project.(dialect.Stateful).For(w.ss.req), false
	}
	return w.project
}

// flush hands what was written to the client; begun is when that began, events how many records it is of.
func (w *writer) flush(begun time.Time, events int) error {
	if w.shown == 0 {
		return w.over()
	}
	w.shown = 0
	w.slot.Release() // the client may make it wait
	n, err := w.sink.Flush()
	w.ss.c.Sent += n
	if errors.Is(err, transport.ErrLate) {
		return errors.Join(w.late(), err)
	}
	if err != nil {
		return err
	}
	w.flushed = time.Now()
	w.ss.read.wrote(w.flushed.Sub(begun))
	if h := w.ss.live.cfg.Hooks.EventsSent; h != nil {
		h(w.ss.bound.DialectName, events, n)
	}
	return w.over()
}

// late writes the frame that ends the stream, if the log has its record already, for a client to whom nothing else is
// sent any more. It returns errOver when the client has that frame.
func (w *writer) late() error {
	ss := w.ss
	if w.last {
		return errOver
	}
	head, err := ss.live.cfg.Runs.Existing(ss.ctx, ss.Src.Key)
	if err != nil || !head.State.Final() {
		return err
	}
	for r, err := range ss.live.cfg.Runs.Replay(ss.ctx, ss.Src, max(ss.After, ss.c.Seq), head.Last) {
		if err == nil {
			err = w.own().Project(&w.frames, r)
		}
		if err != nil {
			return err
		}
		if list, last := upToLast(w.frames.List); last {
			return w.put(list[len(list)-1:])
		}
		w.frames.Reset()
	}
	return nil
}

// over returns errOver behind the stream's last frame.
func (w *writer) over() error {
	if w.last {
		return errOver
	}
	return nil
}

// put writes frames up to the last one that the stream has.
func (w *writer) put(list []dialect.Frame) error {
	list, w.last = upToLast(list)
	w.shown += len(list)
	return w.sink.Write(list)
}

// write writes what the client is shown of a record's frames, up to the last one that the stream has.
func (w *writer) write(list []dialect.Frame) error {
	choice := w.ss.req.Select
	if w.ss.apart(w.at) {
		w.ss.merged.at = w.at
		choice = w.ss.merged
	}
	if choice == nil {
		return w.put(list)
	}
	list, w.last = upToLast(list)
	for i := 0; i < len(list); i++ {
		from := i
		for i < len(list) && choice.Match(&list[i]) {
			i++
		}
		if i == from { // it is hidden
			continue
		}
		w.shown += i - from
		if err := w.sink.Write(list[from:i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) record(r schema.Record) error {
	if w.last { // nothing comes behind it
		return nil
	}
	if err := w.own().Project(w.framesFor(r), r); err != nil {
		return state.ProjectError(r, err)
	}
	if w.spared {
		for i := range w.frames.List {
			w.frames.List[i].Token = nil
		}
	}
	w.at = r.Seq
	if err := w.write(w.frames.List); err != nil {
		return err
	}
	w.frames.Reset()
	w.ss.c.Seq = r.Seq
	w.ss.c.Events++
	return nil
}

// framesFor returns where the frames of a record go, nil when the client is too far back to be shown it
// (dialect.Stream.Latest).
func (w *writer) framesFor(r schema.Record) *dialect.Frames {
	if most := schema.Seq(w.ss.bound.Latest); most > 0 {
		if v, ok := w.ss.read.(*viewReader); ok && r.Seq+most <= v.v.now.Load().hi {
			w.ss.c.Dropped++
			return nil
		}
	}
	return &w.frames
}

func (w *writer) keepAlive() error {
	if time.Since(w.flushed) < w.ss.silence() {
		return nil // something was sent since the clock was set
	}
	if err := w.sink.KeepAlive(); err != nil {
		return err
	}
	w.flushed = time.Now()
	if h := w.ss.live.cfg.Hooks.KeptAlive; h != nil {
		h(w.ss.bound.DialectName)
	}
	return nil
}
