package provider

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/schema/jsonscan"
)

// Assembly puts the blocks of one message together out of pieces. What a piece belongs to is decided by all that it
// says of that: the id of a call, else its place, else its shape. Services write ids and places wrongly in every way,
// and say early that something has ended: see the package's contract.
type Assembly struct {
	Out *Writer
	Msg *Message
	// Run is the text or thought that the next piece of its kind goes on with; nil when there is none.
	Run    *Block
	Pieces int // that had something in them
	Calls  Register[Call]

	frame  int            // that is being taken
	begun  int            // blocks
	repeat bool           // the frame has the whole message once more
	heard  map[string]int // bytes that it had so far, by kind
}

// Call is a call of a tool as far as it is known.
type Call struct {
	*Block
	id      string
	place   int
	frame   int  // that announced it
	matched bool // it has been found in a repeat
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
	if !a.repeat {
		return
	}
	a.heard = make(map[string]int)
	for _, k := range a.Calls.List {
		k.matched = false
	}
}

// IsRepeat reports whether a text, or a list of parts that are, is all that has been emitted of its kind, in
// several pieces: services send that in a last one.
func (a *Assembly) IsRepeat(kind string, v json.RawMessage) bool {
	const least = 16 // bytes: shorter ones come twice by chance
	var text []byte
	if jsonscan.IsString(v) {
		text = jsonscan.Unescape(jsonscan.Inner(v))
	}
	for _, raw := range Elements(v) {
		p, _ := Parse(raw)
		text = append(text, p.Str("text")...)
	}
	return a.Pieces > 2 && len(text) >= least && bytes.Equal(a.textOf(kind), text)
}

// textOf returns all text of a kind that has been emitted, as far as it is kept.
func (a *Assembly) textOf(kind string) (text []byte) {
	for _, b := range a.Msg.Blocks {
		if b.Kind == kind && !b.ToolUse {
			text = append(text, jsonscan.Unescape(b.text)...)
		}
	}
	return text
}

// Rest returns what a text of the whole message has beyond what was emitted of its kind.
func (a *Assembly) Rest(kind string, v json.RawMessage) json.RawMessage {
	text := jsonscan.Unescape(jsonscan.Inner(v))
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
	if len(jsonscan.Inner(v)) > 0 {
		a.Pieces++
		a.Open(kind).Text(v)
	}
}

// Open returns the run of a kind, which begins where there is none.
func (a *Assembly) Open(kind string) *Block {
	if a.Run == nil || a.Run.Kind != kind || !a.Run.Open() {
		a.StopRun()
		a.Run = a.Msg.Begin(TextBlock(a.Next(), kind))
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
	p.ID = ShortenID(p.ID)
	p.Name = ShortenID(p.Name)
	if p.ID == "null" {
		p.ID = ""
	}
	k := a.callOf(p)
	if k == nil && len(a.Calls.List) < maxCalls {
		a.StopRun()
		b := &Block{Index: a.Next(), Kind: "tool_use", ToolUse: true, FreeText: p.FreeText}
		k = &Call{Block: a.Msg.Announce(b), frame: a.frame, place: -1}
		a.Calls.Add("", -1, k)
	}
	if k == nil || !k.add(p) {
		return nil
	}
	if k.place < 0 {
		k.place = p.Place
	}
	a.Calls.Name(p.ID, p.Place, k)
	a.Pieces++
	return k
}

// callOf finds the call of a piece; nil when the piece begins one.
func (a *Assembly) callOf(p Piece) *Call {
	for _, k := range a.Calls.List {
		if !a.repeat || k.matched {
			continue
		}
		unnamed := k.id == "" || p.ID == "" || a.Calls.byID[p.ID] == nil
		if k.id == p.ID || k.Tool == p.Name && (unnamed || k.isRepeat(p)) {
			k.matched = true
			return k
		}
	}
	if k := a.Calls.Find(p.ID, p.Place, func(k *Call) bool { return !a.another(k, p) }); k != nil {
		return k
	}
	newest := a.Calls.Newest(nil)
	lacking := a.Calls.Newest((*Call).canGrow)
	switch {
	case p.Name != "" && newest != nil && p.ID == "" && !p.Begins && !a.another(newest, p):
		goesOn := newest.waiting || p.Name == newest.Tool && newest.id != "" && hasInput(p) && newest.canGrow()
		if goesOn { // the name comes in pieces, or with every piece
			return newest
		}
		return nil
	case p.Name != "":
		return nil
	case lacking != nil || hasInput(p):
		return lacking
	}
	return newest
}

// canGrow reports whether the input of a call may go on.
func (k *Call) canGrow() bool { return k.Open() && !k.Whole() }

// hasInput reports whether a piece has some input.
func hasInput(p Piece) bool { return len(p.Text) > len(`""`) || HasValue(p.Input) }

// another reports whether a piece with the id or place of a call is of another one. A name begins a call, and an
// input that is an object ends with it.
func (a *Assembly) another(k *Call, p Piece) bool {
	ended := !k.canGrow() || k.Input != nil
	switch {
	case p.Name == "":
		lacking := func(other *Call) bool { return other != k && other.canGrow() }
		return ended && hasInput(p) && !k.isRepeat(p) && a.Calls.Newest(lacking) != nil
	case k.Tool == "":
		return false
	case p.Begins && p.ID != "" && p.ID == k.id && p.Place >= 0 && k.place >= 0 && p.Place != k.place: // one id for all
		return true
	case p.ID != "" && k.id != "" && p.ID != k.id: // services change the id amid a call, and repeat its name
		named := p.Name != k.Tool && (p.Begins || !k.waiting || k.frame == a.frame)
		entire := !hasInput(p) || p.Text == nil || whole(jsonscan.Unescape(jsonscan.Inner(p.Text)))
		return ended || named || p.Name == k.Tool && k.Len() == 0 && entire
	case p.Name != k.Tool: // the name goes on as long as nothing else has come
		return p.Begins || p.ID != "" && k.id == "" || k.Len() > 0 || k.Input != nil || k.frame == a.frame
	}
	return ended && hasInput(p) && !k.isRepeat(p)
}

// isRepeat reports whether a piece has the whole input of the call once more.
func (k *Call) isRepeat(p Piece) bool {
	if p.Text == nil {
		return bytes.Equal(p.Input, k.Input)
	}
	return len(k.text) == k.size && bytes.Equal(jsonscan.Unescape(jsonscan.Inner(p.Text)), jsonscan.Unescape(k.text))
}

// add adds a piece to the call. false: the call has ended.
func (k *Call) add(p Piece) bool {
	if !k.Open() {
		return !hasInput(p) || k.isRepeat(p)
	}
	k.name(p)
	if k.Tool != "" && len(k.held) > 0 {
		k.emitStart()
	}
	longer := k.matched && k.Len() > 0 && len(p.Text) > k.Len()
	if longer && bytes.HasPrefix(jsonscan.Unescape(jsonscan.Inner(p.Text)), jsonscan.Unescape(k.text)) {
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
	case len(p.Text) <= len(`""`), k.Whole() && k.isRepeat(p):
	case k.Whole() && len(bytes.TrimSpace(jsonscan.Unescape(jsonscan.Inner(p.Text)))) > 0:
		return false
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
		k.CallKind = ShortenID(p.Kind)
	}
	switch {
	case p.ID == "" || p.ID == k.id:
	case k.id == "" && k.waiting:
		k.id, k.Block.Call = p.ID, p.ID
	default: // whoever answers may name it so
		k.Late = k.Late.Set("late_id", Quote(p.ID))
	}
}

// Entire reports whether the message may be all of one: it has something, and every call has its end.
func (a *Assembly) Entire() bool {
	cut := func(k *Call) bool { return k.Len() > 0 && k.canGrow() && !k.FreeText }
	return a.begun > 0 && !slices.ContainsFunc(a.Calls.List, cut)
}

// Stop ends all that is open, as far as the provider says so.
func (a *Assembly) Stop() {
	for _, b := range a.Msg.Blocks {
		b.Stop()
	}
}
