package postgres

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"agentstream/persister"
)

// column is a column of a batch's rows, which is sent as an array parameter.
type column int

const (
	colTenant column = iota
	colDay
	colRun
	colSeq
	colID
	colChild
	colType
	colTS
	colLine
	colPayload
)

// element returns the type of the column's values.
func (c column) element() uint32 {
	switch c {
	case colDay:
		return pgtype.DateOID
	case colSeq:
		return pgtype.Int8OID
	case colTS:
		return pgtype.TimestamptzOID
	}
	return pgtype.TextOID
}

// packed is a column that is encoded from the rows directly into the driver's buffer, in PostgreSQL's binary format of
// arrays (src/backend/utils/adt/arrayfuncs.c, array_recv). With slices, each value would be allocated and copied
// several times.
type packed struct {
	column
	rows  []persister.BatchRow
	dates map[string]time.Time
	room  int // approximate bytes of this column and the following ones
}

const (
	unixDays2000   = 10957           // PostgreSQL counts days and microseconds from 2000-01-01
	unixMicros2000 = 946684800 * 1e6 // in Unix time
)

func (c packed) encode(buf []byte) []byte {
	buf = slices.Grow(buf, c.room)
	buf = binary.BigEndian.AppendUint32(buf, 1) // dimensions
	nulls := len(buf)
	buf = binary.BigEndian.AppendUint32(buf, 0)
	buf = binary.BigEndian.AppendUint32(buf, c.element())
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(c.rows)))
	buf = binary.BigEndian.AppendUint32(buf, 1) // lower bound
	for i := range c.rows {
		at := len(buf)
		value, isNull := c.value(append(buf, 0, 0, 0, 0), &c.rows[i])
		buf = value
		size := int32(len(buf) - at - 4)
		if isNull {
			size = -1
			binary.BigEndian.PutUint32(buf[nulls:], 1)
		}
		binary.BigEndian.PutUint32(buf[at:], uint32(size))
	}
	return buf
}

// value appends a row's value in the binary format of its type.
func (c packed) value(buf []byte, r *persister.BatchRow) (out []byte, isNull bool) {
	switch c.column {
	case colTenant:
		buf = append(buf, r.Chunk.Key.Tenant...)
	case colDay:
		buf = binary.BigEndian.AppendUint32(buf, uint32(c.dates[r.Chunk.Head.Day].Unix()/86400-unixDays2000))
	case colRun:
		buf = append(buf, r.Chunk.Key.Run...)
	case colSeq:
		buf = binary.BigEndian.AppendUint64(buf, uint64(r.Seq))
	case colID:
		buf = append(buf, r.ID...)
	case colChild:
		buf = append(buf, r.Chunk.Child...)
	case colType:
		buf = append(buf, r.Type...)
	case colTS:
		buf = binary.BigEndian.AppendUint64(buf, uint64(r.TS.Unix()*1e6+int64(r.TS.Nanosecond())/1000-unixMicros2000))
	case colLine:
		buf = append(buf, r.Line...)
	case colPayload:
		if !payloadHolds(r) {
			return buf, true
		}
		buf = append(buf, r.Payload...)
	}
	return buf, false
}

func payloadHolds(r *persister.BatchRow) bool { return r.Payload != nil && jsonbHolds(r.Payload) }

// plain returns the column as a slice, for modes in which the driver derives a parameter's type from its Go value
// (pgx.QueryExecModeExec and pgx.QueryExecModeSimpleProtocol).
func (c packed) plain() any {
	var texts []string
	var times []time.Time
	var seqs []int64
	var payloads []*string
	for i := range c.rows {
		switch r := &c.rows[i]; c.column {
		case colDay:
			times = append(times, c.dates[r.Chunk.Head.Day])
		case colTS:
			times = append(times, r.TS)
		case colSeq:
			seqs = append(seqs, int64(r.Seq))
		case colPayload:
			var payload *string
			if payloadHolds(r) {
				text := string(r.Payload)
				payload = &text
			}
			payloads = append(payloads, payload)
		default:
			text, _ := c.value(nil, r)
			texts = append(texts, string(text))
		}
	}
	switch c.column {
	case colDay, colTS:
		return times
	case colSeq:
		return seqs
	case colPayload:
		return payloads
	}
	return texts
}

// canAskTypes reports whether the driver asks the database for the types of parameters.
func canAskTypes(mode pgx.QueryExecMode) bool {
	return mode != pgx.QueryExecModeExec && mode != pgx.QueryExecModeSimpleProtocol
}

// arrayCodec is the driver's codec of an array type, which accepts packed columns too.
type arrayCodec struct{ *pgtype.ArrayCodec }

// registerPacked makes a connection accept packed columns.
func registerPacked(m *pgtype.Map) error {
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.DateArrayOID, pgtype.Int8ArrayOID,
		pgtype.TimestamptzArrayOID} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			return fmt.Errorf("postgres: the driver has no array type %d", oid)
		}
		codec, ok := t.Codec.(*pgtype.ArrayCodec)
		if !ok {
			return fmt.Errorf("postgres: the driver's array type %s has another codec", t.Name)
		}
		m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrayCodec{codec}})
	}
	return nil
}

// PlanEncode implements pgtype.Codec.
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if p, ok := value.(packed); ok && format == pgtype.BinaryFormatCode && c.ElementType.OID == p.element() {
		return packedPlan{}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type packedPlan struct{}

// Encode implements pgtype.EncodePlan.
func (packedPlan) Encode(value any, buf []byte) ([]byte, error) {
	return value.(packed).encode(buf), nil
}
