package langgraph

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// slotBits of a number are the frame's slot, the others the seq of its record: 2^38 records of 2^15 frames are below
// 2^53, JavaScript's safe range.
const slotBits = 15

// MaxNumber is the greatest number of a frame.
const MaxNumber = 1<<53 - 1

// Number returns the number of the frame at a place: params.seq of the protocol.
func Number(at dialect.Place) int64 { return int64(at.Seq)<<slotBits | int64(at.Slot) }

// PlaceOf returns the place that a number stands for, whether there is a frame or not.
func PlaceOf(n int64) dialect.Place {
	return dialect.Place{Seq: schema.Seq(n >> slotBits), Slot: int(n & dialect.MaxSlot)}
}

// synth begins the ids of root lifecycles. Clients cut the run's id out of them.
const synth = "synth:"

// EventID returns the id of the frame at a place: its number, and what ties it to the thread. Root lifecycles have it
// behind "synth:", the id of the run and a colon.
func EventID(thread string, at dialect.Place) string { return string(appendID(nil, thread, at)) }

func appendID(dst []byte, thread string, at dialect.Place) []byte {
	from := len(dst)
	dst = strconv.AppendInt(dst, Number(at), 10)
	sum := crc32.Update(crc32.ChecksumIEEE([]byte(thread)), crc32.IEEETable, dst[from:])
	return strconv.AppendUint(append(dst, '-'), uint64(sum), 10)
}

// ParseEventID returns the place of an event. The error wraps schema.ErrBadCursor for what is no id of the thread's
// events.
func ParseEventID(thread, id string) (dialect.Place, error) {
	digits := id
	if strings.HasPrefix(id, synth) {
		digits = id[strings.LastIndexByte(id, ':')+1:]
	}
	number, _, _ := strings.Cut(digits, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	if at := PlaceOf(n); err == nil && n > dialect.MaxSlot && n <= MaxNumber && EventID(thread, at) == digits {
		return at, nil
	}
	return dialect.Place{}, dialect.Refuse(schema.ErrBadCursor, "not the id of an event of this thread")
}

// RunID returns the id, a UUID, of the LangGraph run that the record at seq begins: a command.message, where a client
// has asked for it, so that the answer to the client has it before there is an agent.
func RunID(thread string, seq schema.Seq) string { return uuidOf("run", thread, seq) }

// modelRunID is the id of the model call whose message the record at seq begins.
func modelRunID(thread, lane string, seq schema.Seq) string {
	return uuidOf("model/"+lane, thread, seq)
}

// uuidOf makes a UUID of version 8 (RFC 9562).
func uuidOf(what, thread string, seq schema.Seq) string {
	sum := sha256.Sum256([]byte(what + "\n" + thread + "\n" + strconv.FormatInt(int64(seq), 10)))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
