package dialect

import (
	"slices"
	"strconv"

	"agentstream/schema"
)

// Frame is one message to a client, whatever carries it.
type Frame struct {
	Event []byte // name of the event; SSE "event"
	Data  []byte // one line: a JSON text, or another text where the protocol has such ("[DONE]")
	Token []byte // what the client brings to resume after this event; nil except on an event's last frame
	Last  bool   // the stream ends with this frame, cleanly, also where a Selection hides it
	// Comment means that Data is a comment of SSE, which is no event. Other transports leave it out. Only frames of no
	// record may be one.
	Comment bool
	// Slot is the place of the frame among all that its record has for anybody (Place). It is used only where cursors are
	// places, and grows within a record.
	Slot int
	// Again marks what a client must have received to understand what comes: one that begins behind it is given it
	// once more (Frames.Again).
	Again bool
	// Lane is whose the frame is and Kind what it is, both in the dialect's own terms, for its Selections. No client sees
	// them.
	Lane []byte
	Kind int
}

// Frames is the list that a projector appends to, with memory for the texts that it makes up. The
// caller owns it and reuses it; frames are valid until Reset. The zero value is ready.
type Frames struct {
	List []Frame
	// Again is set by an Opener of a dialect with a state: the record from which on the frames that are marked Again
	// come once more, behind those of the opening and up to the stream's place. They have no tokens, so that they do
	// not move the place of a client; but for a last one. 0: none do. A client whose place is behind a marked frame
	// gets none either.
	Again schema.Seq

	arena []byte
}

// Reset empties the list and keeps the memory.
func (f *Frames) Reset() {
	clear(f.List) // so that a reused list does not keep a pack's bytes alive
	f.List = f.List[:0]
	f.arena = f.arena[:0]
	f.Again = 0
}

// Grow makes room for so many more bytes of texts.
func (f *Frames) Grow(n int) { f.arena = slices.Grow(f.arena, n) }

// Add appends a frame.
func (f *Frames) Add(fr Frame) { f.List = append(f.List, fr) }

// Number returns n in decimal, valid until Reset.
func (f *Frames) Number(n int64) []byte {
	start := len(f.arena)
	f.arena = strconv.AppendInt(f.arena, n, 10)
	return f.arena[start:len(f.arena):len(f.arena)]
}

// Text returns the joined parts, valid until Reset.
func (f *Frames) Text(parts ...[]byte) []byte {
	start := len(f.arena)
	for _, p := range parts {
		f.arena = append(f.arena, p...)
	}
	return f.arena[start:len(f.arena):len(f.arena)]
}
