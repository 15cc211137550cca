package assemble

import (
	"cmp"
	"slices"

	"agentstream/schema/jsonscan"
)

// Part returns what was streamed of an open block since its last BlockPart, the inside of a JSON string; nil without
// Limits.Text. The bytes are never changed.
func (b *Block) Part() []byte { return slices.Clip(b.part) }

// room makes room for a piece of a block, if texts are kept, and returns how many bytes it will take.
func (a *Run) room(l *Lane, m *Message, b *Block, low uint16, text []byte) (n int) {
	if a.limits.Text == 0 {
		return 0
	}
	n = len(text)
	if low != 0 {
		n += len(`\udc00`)
	}
	if len(b.part)+n > a.limits.Text {
		a.endPart(l, m, b)
	}
	if a.texts+n > a.limits.Texts {
		a.shed(l, m, b)
	}
	return n
}

// hold keeps a piece for which there is room. One that is too long by itself is a part.
func (a *Run) hold(l *Lane, m *Message, b *Block, low uint16, text []byte) {
	was := len(b.part)
	if low != 0 {
		b.part = jsonscan.AppendUnit(b.part, low)
	}
	b.part = append(b.part, text...)
	a.texts += len(b.part) - was
	if len(b.part) > a.limits.Text || a.texts > a.limits.Texts {
		a.endPart(l, m, b)
	}
}

// endPart ends the part of a block's text that is kept.
func (a *Run) endPart(l *Lane, m *Message, b *Block) {
	if len(b.part) > 0 {
		b.Parts++
		a.add(Transition{Kind: BlockPart, Lane: l, Message: m, Block: b, Text: a.release(b)})
	}
}

// release returns the part of a block's text that is kept, which is not kept any longer.
func (a *Run) release(b *Block) []byte {
	part := b.part
	a.texts -= len(part)
	b.part = nil
	return part
}

// shed ends the longest parts, until a quarter of Limits.Texts is free. The block at hand counts as well: its message
// may not be the lane's.
func (a *Run) shed(l *Lane, m *Message, b *Block) {
	type part struct {
		lane    *Lane
		message *Message
		block   *Block
	}
	all := []part{{l, m, b}}
	for _, other := range a.lanes {
		if other.Message == nil {
			continue
		}
		for _, o := range other.Message.Blocks {
			if len(o.part) > 0 && o != b {
				all = append(all, part{other, other.Message, o})
			}
		}
	}
	slices.SortFunc(all, func(x, y part) int {
		return cmp.Or(len(y.block.part)-len(x.block.part), x.lane.order-y.lane.order,
			int(x.message.Start-y.message.Start), x.block.Place-y.block.Place)
	})
	for _, p := range all {
		if a.texts <= a.limits.Texts/4*3 {
			return
		}
		if p.lane != l {
			p.lane = a.own(p.lane)
			p.message = p.lane.Message
			p.block = p.message.At(p.block.Place)
		}
		a.endPart(p.lane, p.message, p.block)
	}
}
