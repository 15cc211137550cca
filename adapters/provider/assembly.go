package provider

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Assembly puts the blocks of one message together out of pieces. What a piece belongs to is decided by all that it
// says of that: the id of a call, else its place, else its shape. Services write ids and places wrongly in every way,
// and say early that something has ended: see the package's contract.
type Assembly struct {
	Out *Writer
	Msg *Message
	// Run is the text or thought that the next piece of its kind goes on with; nil when there is none.
	Run  *Block
	Make func(index int, kind string) *Block // makes the block of a run; nil is TextBlock

	calls  Register[Call]
	frame  int            // that is being taken
	said   int            // pieces that had something in them
	begun  int            // blocks
	repeat bool           // the frame has the whole message once more
	heard  map[string]int // bytes that it had so far, by kind
}

// Call is a call of a tool as far as it is known.
type Call struct {
	*Block
	id      string
	place   int
	held    []byte // input that came before the name
	frame   int    // that announced it
	matched bool   // it has been found in a repeat
}

// Piece is what one frame says of a call.
type Piece struct {
	ID, Name, Kind string
	Place          int             // that the provider gives the call; -1 when it gives none
	Text           json.RawMessage // piece of the input, as text
	Input          json.RawMessage // the input, where it is no text
	FreeText       bool
	Begins         bool   // it has what only the first piece of a call has
	Late           Fields // members that the call has beside
}

const (
	maxCalls = 4096 // of one message
	maxLate  = 128  // members that are gathered of a call
)

// Step announces that the next pieces are of another frame. whole reports that it has the message as a whole: what is
// there already is not emitted again.
func (a *Assembly) Step(whole bool) {
	a.frame++
	a.repeat = whole && a.begun > 0
	if a.repeat {
		a.heard = make(map[string]int)
	}
	for _, k := range a.calls.List {
		k.matched = k.matched && !a.repeat
	}
}

// Repeats reports whether a text, or a list of parts that are, is all that has been emitted of its kind, in several
// pieces: services send that in a last one.
func (a *Assembly) Repeats(kind string, v json.RawMessage) bool {
	const least = 16 // bytes: shorter ones come twice by chance
	var text []byte
	if IsString(v) {
		text = Unescape(Inner(v))
	}
	for _, raw := range Elements(v) {
		p, _ := Parse(raw)
		text = append(text, p.Str("text")...)
	}
	return a.said > 2 && len(text) >= least && bytes.Equal(a.textOf(kind), text)
}

// textOf returns all text of a kind that has been emitted, as far as it is kept.
func (a *Assembly) textOf(kind string) (text []byte) {
	for _, b := range a.Msg.Blocks {
		if b.Kind == kind && !b.ToolUse {
			text = append(text, Unescape(b.text)...)
		}
	}
	return text
}

// Rest returns what a text of the whole message has beyond what was emitted of its kind.
func (a *Assembly) Rest(kind string, v json.RawMessage) json.RawMessage {
	text := Unescape(Inner(v))
	known := a.textOf(kind)
	known = known[min(a.heard[kind], len(known)):]
	a.heard[kind] += len(text)
	switch {
	case bytes.HasPrefix(known, text):
		return Quote("")
	case bytes.HasPrefix(text, known):
		return Quote(string(text[len(known):]))
	}
	a.Out.Beside("message", Fields{{kind, v}})
	return Quote("")
}

// Pieces returns how many pieces had something in them.
func (a *Assembly) Pieces() int { return a.said }

// Calls reports whether a call has been made.
func (a *Assembly) Calls() bool { return len(a.calls.List) > 0 }

// Next returns the index of the next block.
func (a *Assembly) Next() int {
	a.begun++
	return a.begun - 1
}

// Say emits a piece of text of some kind. What is empty begins no block.
func (a *Assembly) Say(kind string, v json.RawMessage) {
	if a.repeat {
		v = a.Rest(kind, v)
	}
	if len(Inner(v)) > 0 {
		a.said++
		a.Open(kind).Text(v)
	}
}

// Open returns the run of a kind, which begins where there is none.
func (a *Assembly) Open(kind string) *Block {
	if a.Run == nil || a.Run.Kind != kind || !a.Run.Open() {
		a.StopRun()
		if a.Make == nil {
			a.Make = TextBlock
		}
		a.Run = a.Msg.Begin(a.Make(a.Next(), kind))
	}
	return a.Run
}

// StopRun ends the run: something else begins.
func (a *Assembly) StopRun() {
	if a.Run != nil {
		a.Run.Stop()
		a.Run = nil
	}
}

// Call takes a piece of a call. nil: it has no place.
func (a *Assembly) Call(p Piece) *Call {
	p.ID = Bounded(p.ID)
	p.Name = Bounded(p.Name)
	if p.ID == "null" {
		p.ID = ""
	}
	k := a.callOf(p)
	if k == nil {
		k = a.newCall(p)
	}
	if k == nil || !k.add(p) {
		return nil
	}
	if k.place < 0 {
		k.place = p.Place
	}
	a.calls.Name(p.ID, p.Place, k)
	a.said++
	return k
}

// callOf finds the call of a piece; nil when the piece begins one.
func (a *Assembly) callOf(p Piece) *Call {
	for _, k := range a.calls.List {
		if !a.repeat || k.matched {
			continue
		}
		unnamed := k.id == "" || p.ID == "" || !a.hasID(p.ID)
		if k.id == p.ID || k.Tool == p.Name && (unnamed || k.repeats(p)) {
			k.matched = true
			return k
		}
	}
	if k := a.calls.Find(p.ID, p.Place, func(k *Call) bool { return !a.another(k, p) }); k != nil {
		return k
	}
	if p.Name != "" {
		return a.sameName(p)
	}
	if k := a.calls.Newest((*Call).lacksEnd); k != nil || hasInput(p) {
		return k
	}
	return a.newest()
}

// newest returns the newest call; nil when there is none.
func (a *Assembly) newest() *Call { return a.calls.Newest(func(*Call) bool { return true }) }

// lacksEnd reports whether the input of a call may go on.
func (k *Call) lacksEnd() bool { return k.Open() && !k.Whole() }

// HasValue reports whether a value is there, and is neither null nor empty.
func HasValue(v json.RawMessage) bool {
	switch string(v) {
	case "", "null", `""`, "{}", "[]":
		return false
	}
	return true
}

// hasInput reports whether a piece has some input.
func hasInput(p Piece) bool { return len(p.Text) > len(`""`) || HasValue(p.Input) }

// another reports whether a piece with the id or place of a call is of another one. A name begins a call, and an
// input that is an object ends with it.
func (a *Assembly) another(k *Call, p Piece) bool {
	ended := !k.lacksEnd() || k.Input != nil
	switch {
	case p.Name == "":
		lacking := func(other *Call) bool { return other != k && other.lacksEnd() }
		return ended && hasInput(p) && !k.repeats(p) && a.calls.Newest(lacking) != nil
	case k.Tool == "":
		return false
	case p.Begins && p.ID != "" && p.ID == k.id && p.Place >= 0 && k.place >= 0 && p.Place != k.place: // one id for all
		return true
	case p.ID != "" && k.id != "" && p.ID != k.id: // services change the id in the middle of a call, and repeat its name
		named := p.Name != k.Tool && (p.Begins || !k.waiting || k.frame == a.frame)
		entire := !hasInput(p) || p.Text == nil || whole(Unescape(Inner(p.Text)))
		return ended || named || p.Name == k.Tool && k.Len() == 0 && entire
	case p.Place >= 0 && k.place >= 0 && p.Place != k.place && ended && hasInput(p):
		return true
	case p.Name != k.Tool: // the name goes on as long as nothing else has come
		return p.Begins || p.ID != "" && k.id == "" || k.Len() > 0 || k.Input != nil || k.frame == a.frame
	}
	return ended && hasInput(p) && !k.repeats(p)
}

// sameName returns the newest call where a piece has a name and goes on with it nevertheless: the name comes in
// pieces, or with every piece.
func (a *Assembly) sameName(p Piece) *Call {
	k := a.newest()
	if k == nil || p.ID != "" || p.Begins || a.another(k, p) {
		return nil
	}
	if k.waiting || p.Name == k.Tool && k.id != "" && hasInput(p) && k.lacksEnd() {
		return k
	}
	return nil
}

// hasID reports whether a call has this id.
func (a *Assembly) hasID(id string) bool {
	return slices.ContainsFunc(a.calls.List, func(k *Call) bool { return k.id == id })
}

// repeats reports whether a piece has the whole input of the call once more.
func (k *Call) repeats(p Piece) bool {
	if p.Text == nil {
		return bytes.Equal(p.Input, k.Input)
	}
	return len(k.text) == k.size && bytes.Equal(Unescape(Inner(p.Text)), Unescape(k.text))
}

func (a *Assembly) newCall(p Piece) *Call {
	if len(a.calls.List) >= maxCalls {
		return nil
	}
	a.StopRun()
	b := &Block{Index: a.Next(), Kind: "tool_use", ToolUse: true, FreeText: p.FreeText}
	k := &Call{Block: a.Msg.Announce(b), frame: a.frame, place: -1}
	a.calls.Add("", -1, k)
	return k
}

// add adds a piece to the call. false: the call has ended.
func (k *Call) add(p Piece) bool {
	if !k.Open() {
		return !hasInput(p) || k.repeats(p)
	}
	k.name(p)
	if k.Tool != "" && len(k.held) > 0 {
		k.release()
	}
	if k.Len() > 0 && len(p.Text) > k.Len() && k.matched && bytes.HasPrefix(Unescape(Inner(p.Text)), Unescape(k.text)) {
		return k.Settle(p.Text)
	}
	for _, f := range p.Late {
		if HasValue(f.Value) && len(k.Late) < maxLate {
			k.Late = k.Late.Set(f.Name, bytes.Clone(f.Value))
		}
	}
	if HasValue(p.Input) { // not as text, but as it is
		k.Input = bytes.Clone(p.Input)
	}
	switch {
	case len(p.Text) <= len(`""`), k.Whole() && k.repeats(p):
	case k.Whole() && len(bytes.TrimSpace(Unescape(Inner(p.Text)))) > 0:
		return false
	case k.Tool == "" && len(k.held) < maxInput:
		k.held = append(k.held, Inner(p.Text)...)
	default:
		k.Text(p.Text)
	}
	return true
}

// name takes what a piece says of the call itself. A name comes in pieces too, as long as no input has come.
func (k *Call) name(p Piece) {
	switch {
	case k.waiting && strings.HasPrefix(p.Name, k.Tool): // all of it so far, or the first piece
		k.Tool = p.Name
	case k.waiting:
		k.Tool += p.Name
	case p.Name != "" && p.Name != k.Tool:
		k.Late = k.Late.Set("late_name", Quote(p.Name))
	}
	if k.CallKind == "" {
		k.CallKind = Bounded(p.Kind)
	}
	switch {
	case p.ID == "" || p.ID == k.id:
	case k.id == "" && k.waiting:
		k.id, k.Block.Call = p.ID, p.ID
	default: // whoever answers may name it so
		k.Late = k.Late.Set("late_id", Quote(p.ID))
	}
}

// release emits the input that waited for a name.
func (k *Call) release() {
	held := k.held
	k.held = nil
	k.Text(Enquote(held))
}

// Entire reports whether the message may be all of one: it has something, and every call has its end.
func (a *Assembly) Entire() bool {
	cut := func(k *Call) bool { return k.Len() > 0 && k.lacksEnd() && !k.FreeText }
	return a.begun > 0 && !slices.ContainsFunc(a.calls.List, cut)
}

// Stop ends all that is open, as far as the provider says so.
func (a *Assembly) Stop() {
	a.each(func(b *Block) { b.Stop() })
}

// End ends all that is open.
func (a *Assembly) End(finished bool) {
	a.each(func(b *Block) { b.End(finished) })
}

// each calls how with all that may be open. Input that waited for a name waits no longer.
func (a *Assembly) each(how func(*Block)) {
	if a.Run != nil {
		how(a.Run)
	}
	for _, k := range a.calls.List {
		if len(k.held) > 0 {
			k.release()
		}
		how(k.Block)
	}
}
