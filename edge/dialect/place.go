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
	p, ok := PlaceOf(id)
	if !ok || string(p.AppendID(nil, run)) != id {
		return Place{}, Refuse(schema.ErrBadCursor, "not the id of an event of this run")
	}
	return p, nil
}

// PlaceOf returns the place of an id of whatever run. ok is false for what is no id.
func PlaceOf(id string) (p Place, ok bool) {
	if len(id) != placeLen {
		return p, false
	}
	n := [2]uint64{}
	for i := range len(id) {
		d := uint64(0)
		switch c := id[i]; {
		case c >= '0' && c <= '9':
			d = uint64(c - '0')
		case c >= 'a' && c <= 'v':
			d = uint64(c-'a') + 10
		default:
			return p, false
		}
		switch {
		case i < placeSeq/5:
			n[0] = n[0]<<5 | d
		case i < (placeSeq+placeSlot)/5:
			n[1] = n[1]<<5 | d
		}
	}
	p = Place{Seq: schema.Seq(n[0]), Slot: int(n[1])}
	return p, p.Seq >= 1 && p.Seq <= schema.MaxSeq
}

func appendDigits(dst []byte, n uint64, bits int) []byte {
	for bits -= 5; bits >= 0; bits -= 5 {
		dst = append(dst, placeDigits[n>>bits&31])
	}
	return dst
}

// placeCheck is what ties an id to its run. It keeps mistakes out, not forgers: an id opens nothing.
func placeCheck(run string, digits []byte) uint64 {
	sum := ^uint32(0) // as package hash/crc32 has it, without a copy of run
	for i := range len(run) {
		sum = crc32.IEEETable[byte(sum)^run[i]] ^ sum>>8
	}
	for _, c := range digits {
		sum = crc32.IEEETable[byte(sum)^c] ^ sum>>8
	}
	return uint64(^sum & (1<<placeSum - 1))
}
