package qoder

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Prefixes of ids (qoder §1.2).
const (
	EventPrefix   = "evt_"
	ThreadPrefix  = "sthr_"
	SessionPrefix = "sess_"
)

// Slots of a record's frames. Frames are numbered from 0 as they come; the slots from slotLater on are of frames
// that come with a later record, whose id must be known before: they are found by reading on.
const (
	maxSlot   = 1<<24 - 1
	slotLater = 1 << 23
)

// eventID is the id of a frame: 48 bits of seq, 24 of slot, 56 that only this session has.
func eventID(session string, seq schema.Seq, slot int) string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(seq)<<16)
	raw[6], raw[7], raw[8] = byte(slot>>16), byte(slot>>8), byte(slot)
	var space [len("event\x00") + schema.MaxRunID + 16]byte
	in := append(append(append(space[:0], "event\x00"...), session...), 0)
	sum := sha256.Sum256(append(in, raw[:9]...))
	copy(raw[9:], sum[:])
	var id [len(EventPrefix) + 32]byte
	return string(hex.AppendEncode(append(id[:0], EventPrefix...), raw[:]))
}

// parseID takes an id apart. The error wraps schema.ErrBadCursor for what is no id of this session.
func parseID(session, id string) (seq schema.Seq, slot int, err error) {
	raw, herr := hex.DecodeString(trimPrefix(id, EventPrefix))
	if herr != nil || len(raw) != 16 {
		return 0, 0, dialect.Refuse(schema.ErrBadCursor, "id is not an event's")
	}
	seq = schema.Seq(binary.BigEndian.Uint64(raw[:8]) >> 16)
	slot = int(raw[6])<<16 | int(raw[7])<<8 | int(raw[8])
	if seq < 1 || seq > schema.MaxSeq || eventID(session, seq, slot) != id {
		return 0, 0, dialect.Refuse(schema.ErrBadCursor, "event is not of this session")
	}
	return seq, slot, nil
}

func trimPrefix(id, prefix string) string {
	if len(id) < len(prefix) || id[:len(prefix)] != prefix {
		return ""
	}
	return id[len(prefix):]
}

// ThreadID is the id of a lane's thread: of a child, or of the coordinator (schema.RootLane or "").
func ThreadID(session, child string) string {
	sum := sha256.Sum256([]byte("thread\x00" + session + "\x00" + child))
	return ThreadPrefix + hex.EncodeToString(sum[:16])
}
