package redact

import (
	"slices"
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Bounds of what is kept of a block's text, so that a secret is found that goes on in the next delta.
const (
	maxBlocks  = 16       // of a run, those written last
	maxCarry   = 512      // bytes of a text
	looseCarry = 128      // of one in which an expression may begin with anything
	labelCarry = 96       // of one within a private key: the line that ends it
	maxEaten   = 16 << 10 // bytes of a secret that is hidden up to where it ends
)

// Trail is how the texts of a run's blocks have ended so far. The zero Trail is that of a run that begins. It is not
// changed: Batch returns the next one.
type Trail struct{ blocks []openBlock }

// openBlock is the text of one block so far.
type openBlock struct {
	child, typ, name string // name: the call, or the number of the block

	carry string // the end of what came before
	cut   int    // index in carry from which it was hidden; len(carry): none of it
	rule  int    // of a secret that the text is within, when eaten > 0
	more  class  // bytes that it goes on with; 0: all, up to the end of a private key
	eaten int    // bytes of it so far

	pieces []piece // of the batch at hand
}

// piece is the text of a delta.
type piece struct {
	event int // its index in the batch
	text  string
}

// Result is what became of a batch.
type Result struct {
	Events []schema.Event // those that were given where nothing was found, otherwise a copy
	Trail  Trail
	// Open reports that a text ends with what may be the beginning of a secret: what is known then stays in the Trail.
	Open bool
	Hits []Hit // of all events
	// Changed is how many events are others than those that were given.
	Changed int

	changed map[int]*tally // by the number of the event
}

// Batch hides what the rules find in events of one run, in their order. Those that are given are not changed. Deltas that
// follow each other in one block are looked at as one text.
func (r *Rules) Batch(before Trail, events []schema.Event) Result {
	if r == nil {
		return Result{Events: events}
	}
	return r.batch(before, events, maxBlocks)
}

// batch is Batch with a bound of the texts that are open at once.
func (r *Rules) batch(before Trail, events []schema.Event, most int) Result {
	if r == nil {
		return Result{Events: events}
	}
	b := sifter{r: r, given: events, out: events, blocks: slices.Clone(before.blocks), most: most}
	for i := range events {
		b.event(i)
	}
	return b.finish()
}

// sifter is one Batch under way.
type sifter struct {
	r      *Rules
	given  []schema.Event
	out    []schema.Event
	blocks []openBlock
	most   int            // blocks
	counts map[int]*tally // by event
	total  tally
	open   bool
}

// event looks at an event: at the text of a delta when its block ends.
func (b *sifter) event(i int) {
	given := &b.given[i]
	isDelta := isPiece(given.Type)
	if isDelta && b.isCalm(given) {
		return
	}
	b.look(i, *given, isDelta)
}

// isCalm reports whether a delta, of a block that is not looked at, neither holds anything nor may end with the beginning
// of something. Nearly all deltas are, so it makes no copy.
func (b *sifter) isCalm(e *schema.Event) bool {
	if b.r.paths || len(e.Extra) > 0 || !b.r.plain(e.Payload) {
		return false
	}
	text, name := textOf(e.Payload)
	return text != nil && b.find(e, name) < 0 && !b.r.mayGoOn(jsonscan.Inner(text))
}

// find returns the index of the block of a delta, -1 where it is not looked at.
func (b *sifter) find(e *schema.Event, name []byte) int {
	for i := range b.blocks {
		if g := &b.blocks[i]; g.typ == e.Type && g.name == string(name) && g.child == e.ChildID {
			return i
		}
	}
	return -1
}

// look looks at an event that may hold something.
func (b *sifter) look(i int, e schema.Event, isDelta bool) {
	if isDelta && b.piece(i, &e) {
		return
	}
	b.border(&e)
	var t tally
	b.r.clean(&e, &t)
	if t.hasAny() {
		b.change(i, e, &t)
	}
}

// change takes an event over that was changed.
func (b *sifter) change(i int, e schema.Event, t *tally) {
	if len(b.out) > 0 && &b.out[0] == &b.given[0] {
		b.out = slices.Clone(b.given)
	}
	b.out[i] = e
	if b.counts == nil {
		b.counts = make(map[int]*tally)
	}
	sum := b.counts[i]
	if sum == nil {
		sum = &tally{}
		b.counts[i] = sum
	}
	for rule, n := range t.counts {
		if n >= 0 {
			sum.add(b.r, rule, n)
			b.total.add(b.r, rule, n)
		}
	}
}

// isPiece reports whether events of a type are pieces of a text.
func isPiece(typ string) bool {
	switch typ {
	case schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta, schema.TypeToolOutputDelta:
		return true
	}
	return false
}

// piece takes the text of a delta into its block. false: it has no text.
func (b *sifter) piece(i int, e *schema.Event) bool {
	var t tally
	if b.r.paths {
		e.Payload = b.r.cleanPaths(e.Type, e.Payload, &t)
	}
	text, name := textOf(e.Payload)
	if text == nil {
		return false
	}
	at := b.find(e, name)
	calm := b.r.plain(e.Payload)
	if !calm || len(e.Extra) > 0 {
		b.beside(e, &t)
	}
	if t.hasAny() {
		b.change(i, *e, &t)
	}
	if at < 0 && calm && !b.r.mayGoOn(jsonscan.Inner(text)) {
		return true
	}
	if at < 0 {
		if len(b.blocks) >= b.most {
			b.close(0)
		}
		at = len(b.blocks)
		b.blocks = append(b.blocks, openBlock{child: e.ChildID, typ: e.Type, name: string(name)})
	}
	g := &b.blocks[at]
	g.pieces = append(g.pieces, piece{event: i, text: jsonscan.DecodeString(text)})
	return true
}

// beside looks at what a delta has beside its text.
func (b *sifter) beside(e *schema.Event, t *tally) {
	w := walk{r: b.r, t: t, typ: e.Type, skip: "text"}
	e.Payload = w.clean(e.Payload)
	rest := schema.Event{Type: e.Type, Extra: e.Extra}
	b.r.clean(&rest, t)
	e.Extra = rest.Extra
}

// textOf returns the text of a delta as it stands, and what names its block.
func textOf(payload []byte) (text, name []byte) {
	for n, v := range jsonscan.Members(payload) {
		switch string(n) {
		case "text":
			text = nil
			if jsonscan.IsString(v) {
				text = v
			}
		case "call_id":
			name = v
		case "index":
			if name == nil {
				name = v
			}
		}
	}
	return text, name
}

// mayGoOn reports whether the inner bytes of a text, in which nothing was found, may end with the beginning of
// something that is looked for.
func (r *Rules) mayGoOn(inner []byte) bool {
	if r.loose || len(inner) == 0 {
		return r.loose
	}
	tail := inner[max(0, len(inner)-2*maxBegin):]
	for i, c := range tail {
		if r.known && isPartial(tail, i) || r.kinds[cards] >= 0 && c >= '2' && c <= '6' && isDigits(tail, i) {
			return true
		}
	}
	return r.hasLiterals && r.literalAt(string(tail)) < len(tail)
}

// isPartial reports whether the end of a text is the beginning of what a known secret begins with.
func isPartial(tail []byte, i int) bool {
	c := tail[i]
	if !suspectFirst[c] || i > 0 && classOf[tail[i-1]]&alnum != 0 && c != pemBegin[0] && (i < 2 || tail[i-2] != '\\') {
		return false
	}
	rest := tail[i:]
	for _, s := range byFirst[c] {
		if len(rest) <= len(s.begin) && s.begin[:len(rest)] == string(rest) {
			return true
		}
	}
	return len(rest) <= len(tokenBegin) && tokenBegin[:len(rest)] == string(rest) ||
		len(rest) <= len(pemBegin) && pemBegin[:len(rest)] == string(rest)
}

// isDigits reports whether the end of a text may be the beginning of the number of a card.
func isDigits(tail []byte, i int) bool {
	if i > 0 && classOf[tail[i-1]]&alnum != 0 && (i < 2 || tail[i-2] != '\\') {
		return false
	}
	for _, c := range tail[i:] {
		if classOf[c] != digit && c != ' ' && c != '-' {
			return false
		}
	}
	return true
}

// maxBegin is the longest beginning of a known secret, in bytes; digits of cards may be as many with what divides them.
const maxBegin = 2 * mostDigits

// literalAt returns where the last part of a text begins that an expression may match with what follows: the literal that
// it begins with, or a part of it. The length of the text: there is none.
func (r *Rules) literalAt(text string) int {
	at := len(text)
	for i := range r.list {
		l := r.list[i].literal
		if len(l) < minLiteral {
			continue
		}
		if n := strings.LastIndex(text, l); n >= 0 {
			at = min(at, n)
		}
		for k := min(len(l)-1, len(text)); k > 0; k-- {
			if strings.HasSuffix(text, l[:k]) {
				at = min(at, len(text)-k)
				break
			}
		}
	}
	return at
}

// border closes the blocks that end with an event.
func (b *sifter) border(e *schema.Event) {
	calls, all := false, false
	switch e.Type {
	case schema.TypeMessageStart, schema.TypeMessageEnd, schema.TypeBlockStart, schema.TypeBlockEnd:
	case schema.TypeToolEnd:
		calls = true
	default:
		all = schema.IsBorder(e.Type)
		if !all {
			return
		}
	}
	for i := len(b.blocks) - 1; i >= 0; i-- {
		g := &b.blocks[i]
		if g.child == e.ChildID && (all || calls == (g.typ == schema.TypeToolOutputDelta)) {
			b.close(i)
		}
	}
}

// close decides the text of a block that ends.
func (b *sifter) close(i int) {
	b.decide(&b.blocks[i], true)
	b.blocks = slices.Delete(b.blocks, i, i+1)
}

// finish decides what is left, and marks the events.
func (b *sifter) finish() Result {
	for i := len(b.blocks) - 1; i >= 0; i-- {
		g := &b.blocks[i]
		if len(g.pieces) > 0 {
			b.decide(g, false)
		}
		g.pieces = nil
		if g.carry == "" && g.eaten == 0 {
			b.blocks = slices.Delete(b.blocks, i, i+1)
		}
	}
	for i, t := range b.counts {
		mark(&b.out[i], t.hits(b.r))
	}
	return Result{Events: b.out, Trail: Trail{b.blocks}, Open: b.open, Hits: b.total.hits(b.r),
		Changed: len(b.counts), changed: b.counts}
}

// decide hides what is found in the pieces of a block. ended: nothing follows.
func (b *sifter) decide(g *openBlock, ended bool) {
	var s strings.Builder
	s.WriteString(g.carry)
	for _, p := range g.pieces {
		s.WriteString(p.text)
	}
	text, before := s.String(), len(g.carry)
	list, from := b.eat(g, text)
	more, rest, ok := b.r.parts(g.typ, text[from:])
	for i := range more {
		more[i].from, more[i].to = more[i].from+from, more[i].to+from
	}
	rest.from += from
	if ok && rest.sure && (!ended || rest.kind == privateKeys) {
		more = merge(append(more, stretch{from: rest.from, to: len(text), rule: b.r.kinds[rest.kind], more: rest.class}))
	}
	hidden := before > g.cut
	for _, p := range more {
		if p.to <= before {
			continue
		}
		if p.from < before {
			p.from, p.rest = before, hidden // then the mark stands where it began
		}
		list = append(list, p)
	}
	b.spread(g, text, before, list)
	if !ended {
		b.carry(g, text, list, more, rest, ok)
	}
}

// eat returns what belongs to the secret that the text before was within, and where the rest begins.
func (b *sifter) eat(g *openBlock, text string) (list []stretch, from int) {
	if g.eaten == 0 {
		return nil, 0
	}
	before := len(g.carry)
	to := len(text)
	if g.more != 0 {
		to = run(text, before, g.more)
	} else if n := pemLength(text); n >= 0 {
		to = max(n, before)
	}
	ends := to < len(text)
	g.eaten += to - before
	if g.eaten > maxEaten {
		ends = true
	}
	if ends {
		g.eaten = 0
	}
	if to > before {
		list = append(list, stretch{from: before, to: to, rule: g.rule, more: g.more, rest: true})
	}
	return list, to
}

// carry keeps the end of a text for what follows.
func (b *sifter) carry(g *openBlock, text string, list, found []stretch, rest secret, ok bool) {
	n := len(list)
	switch {
	case g.eaten > 0:
	case ok && rest.sure:
		g.rule, g.more, g.eaten = b.r.kinds[rest.kind], rest.class, len(text)-rest.from
	case n > 0 && list[n-1].to == len(text) && list[n-1].more != 0:
		g.rule, g.more, g.eaten = list[n-1].rule, list[n-1].more, 1
	}
	if g.eaten > 0 { // the end of it belongs to a secret
		g.carry = ""
		if g.more == 0 {
			g.carry = strings.Clone(text[max(0, len(text)-labelCarry):])
		}
		g.cut = len(g.carry)
		return
	}
	start := len(text)
	if ok {
		start, b.open = rest.from, true
	}
	tail := max(0, len(text)-maxCarry)
	if n := b.r.literalAt(text[tail:]) + tail; n < start && !isWithin(found, n, len(text)) {
		start, b.open = n, true
	}
	if b.r.loose {
		start = min(start, max(0, len(text)-looseCarry))
	}
	cut := len(text)
	if n := len(found); n > 0 && found[n-1].to == len(text) {
		cut = found[n-1].from
		start = min(start, cut)
	}
	start = max(start, tail)
	g.carry = strings.Clone(text[start:])
	g.cut = max(cut-start, 0)
}

// isWithin reports whether an index is within one of parts that ends before the text does.
func isWithin(list []stretch, at, end int) bool {
	for _, p := range list {
		if p.from <= at && at < p.to && p.to < end {
			return true
		}
	}
	return false
}

// spread sets the texts of the pieces of a block, without the parts.
func (b *sifter) spread(g *openBlock, text string, before int, list []stretch) {
	if len(list) == 0 {
		return
	}
	at := before
	for _, p := range g.pieces {
		from, to := at, at+len(p.text)
		at = to
		var t tally
		var s strings.Builder
		done := from
		for _, part := range list {
			if part.to <= from || part.from >= to {
				continue
			}
			s.WriteString(text[done:max(done, part.from)])
			if part.from >= from && !part.rest {
				s.WriteString(b.r.list[part.rule].mark)
				t.add(b.r, part.rule, 1)
			} else {
				t.add(b.r, part.rule, 0)
			}
			done = min(part.to, to)
		}
		if !t.hasAny() {
			continue
		}
		s.WriteString(text[done:to])
		e := b.out[p.event]
		e.Payload = withText(e.Payload, s.String())
		b.change(p.event, e, &t)
	}
}

// withText returns the payload of a delta with another text.
func withText(payload []byte, text string) []byte {
	raw, _ := textOf(payload)
	from := cap(payload) - cap(raw)
	return apply(payload, []edit{{from, from + len(raw), jsonscan.AppendDecoded(nil, text)}})
}

// Size returns about how many bytes a Trail holds.
func (t Trail) Size() (n int) {
	for i := range t.blocks {
		n += 160 + len(t.blocks[i].carry) + len(t.blocks[i].child) + len(t.blocks[i].name)
	}
	return n
}
