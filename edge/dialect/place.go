package dialect

import (
	"hash/crc32"

	"agentstream/schema"
)

// Place is a frame of a run: the record that has it, and its slot among the frames of that record (Frame.Slot). It is
// the same under every filter and on every node.
type Place struct {
	Seq  schema.Seq
	Slot int // from 0 to MaxSlot
}

// MaxSlot is the highest slot that an id holds.
const MaxSlot = 1<<placeSlot - 1

// Bits of an id, 5 for each of its digits.
const (
	placeSeq  = 55
	placeSlot = 15
	placeSum  = 30
	placeLen  = (placeSeq + placeSlot + placeSum) / 5
)

const placeDigits = "0123456789abcdefghijklmnopqrstuv"

// AppendID appends a place as an opaque id. The ids of a run are all of one length, and ordered as strings they are in
// the order of the log. Equal places of two runs have different ids.
func (p Place) AppendID(dst []byte, run string) []byte {
	dst = appendDigits(dst, uint64(p.Seq), placeSeq)
	dst = appendDigits(dst, uint64(p.Slot), placeSlot)
	return appendDigits(dst, placeCheck(run, dst[len(dst)-(placeSeq+placeSlot)/5:]), placeSum)
}

// ParsePlace returns the place of an id. The error wraps schema.ErrBadCursor, also for an id of another run.
func ParsePlace(run, id string) (Place, error) {
	bad := Refuse(schema.ErrBadCursor, "not the id of an event of this run")
	if len(id) != placeLen {
		return Place{}, bad
	}
	n := [placeLen]uint64{}
	for i := range n {
		switch c := id[i]; {
		case c >= '0' && c <= '9':
			n[i] = uint64(c - '0')
		case c >= 'a' && c <= 'v':
			n[i] = uint64(c-'a') + 10
		default:
			return Place{}, bad
		}
	}
	number := func(from, bits int) (v uint64) {
		for _, d := range n[from : from+bits/5] {
			v = v<<5 | d
		}
		return v
	}
	const sum = (placeSeq + placeSlot) / 5
	p := Place{Seq: schema.Seq(number(0, placeSeq)), Slot: int(number(placeSeq/5, placeSlot))}
	if p.Seq < 1 || p.Seq > schema.MaxSeq || number(sum, placeSum) != placeCheck(run, []byte(id[:sum])) {
		return Place{}, bad
	}
	return p, nil
}

func appendDigits(dst []byte, n uint64, bits int) []byte {
	for bits -= 5; bits >= 0; bits -= 5 {
		dst = append(dst, placeDigits[n>>bits&31])
	}
	return dst
}

// placeCheck is what ties an id to its run. It keeps mistakes out, not forgers: an id opens nothing.
func placeCheck(run string, digits []byte) uint64 {
	sum := crc32.Update(crc32.ChecksumIEEE([]byte(run)), crc32.IEEETable, digits)
	return uint64(sum & (1<<placeSum - 1))
}
