package native

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Field numbers of agent.v1.StreamRequest.
const (
	requestRunID    = 1
	requestAfterSeq = 2
	requestAfterID  = 3
	requestDetail   = 4
	requestChildren = 5
	requestNested   = 6
	requestTypes    = 7
	requestSnapshot = 8
	requestSpeed    = 9
	requestBundle   = 10
	requestProfile  = 11
)

// detailFull is agent.v1.Detail.DETAIL_FULL.
const detailFull = 1

// streamRequest is agent.v1.StreamRequest.
type streamRequest struct {
	run, afterID, profile    string
	afterSeq                 int64
	detail                   uint64
	children, types          []string
	nested, snapshot, bundle bool
	speed                    float64
}

// readMessage reads a request message. The error wraps dialect.ErrBadRequest or schema.ErrBadCursor.
func readMessage(in dialect.Input) (req dialect.Request, err error) {
	m, err := decodeRequest(in.Body)
	if err != nil {
		return req, err
	}
	req = dialect.Request{
		Run: m.run, Filter: dialect.Filter{Children: m.children, Types: m.types, Nested: m.nested},
		Bundle: m.bundle, Snapshot: m.snapshot, Speed: m.speed,
	}
	if req.Cursor, err = m.cursor(); err != nil {
		return req, err
	}
	switch m.detail {
	case 0:
	case detailFull:
		req.Detail = dialect.DetailFull
	default:
		return req, fmt.Errorf("detail %d is unknown: %w", m.detail, dialect.ErrBadRequest)
	}
	if m.speed != 0 && !(m.speed >= minSpeed && m.speed <= maxSpeed) {
		return req, fmt.Errorf("speed is not a number from %v to %v: %w", minSpeed, maxSpeed, dialect.ErrBadRequest)
	}
	letter, err := isProfile(m.profile)
	if err != nil {
		return req, err
	}
	return form{letter: letter}.apply(req)
}

func (m *streamRequest) cursor() (dialect.Cursor, error) {
	switch {
	case m.afterID != "" && m.afterSeq != 0:
		return dialect.Cursor{}, fmt.Errorf("after_seq and after_id are both given: %w", schema.ErrBadCursor)
	case m.afterID != "":
		if !strings.HasPrefix(m.afterID, schema.EventPrefix) || schema.ValidEventID(m.afterID) != nil {
			return dialect.Cursor{}, fmt.Errorf("after_id is not an event's id: %w", schema.ErrBadCursor)
		}
		return dialect.Cursor{ID: m.afterID}, nil
	case m.afterSeq < 0 || m.afterSeq > int64(schema.MaxSeq):
		return dialect.Cursor{}, dialect.Refuse(schema.ErrBadCursor,
			"after_seq must be a seq, a whole number from 0 to %d, not %d", schema.MaxSeq, m.afterSeq)
	}
	return dialect.Cursor{Seq: schema.Seq(m.afterSeq)}, nil
}

// decodeRequest follows protobuf: unknown fields and known ones of another wire type are skipped, and
// of a single field that is given twice the last counts.
func decodeRequest(b []byte) (m streamRequest, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, badMessage(protowire.ParseError(n))
		}
		if !num.IsValid() {
			return m, badMessage(errFieldNumber)
		}
		b = b[n:]
		if n = m.field(num, typ, b); n < 0 {
			return m, badMessage(protowire.ParseError(n))
		}
		b = b[n:]
	}
	for _, list := range [][]string{{m.run, m.afterID, m.profile}, m.children, m.types} {
		for _, s := range list {
			if !utf8.ValidString(s) {
				return m, badMessage(errNotUTF8)
			}
		}
	}
	return m, nil
}

var (
	errNotUTF8     = errors.New("a string is not UTF-8")
	errFieldNumber = errors.New("field number is out of range")
)

func badMessage(err error) error {
	return dialect.Refuse(dialect.ErrBadRequest, "the message is not a StreamRequest: %v", err)
}

// field reads one field's value and returns its length, negative for one that is cut short.
func (m *streamRequest) field(num protowire.Number, typ protowire.Type, b []byte) int {
	switch typ {
	case protowire.VarintType:
		v, n := protowire.ConsumeVarint(b)
		switch num {
		case requestAfterSeq:
			m.afterSeq = int64(v)
		case requestDetail:
			m.detail = uint64(uint32(v)) // an enum is an int32 (protobuf encoding)
		case requestNested:
			m.nested = v != 0
		case requestSnapshot:
			m.snapshot = v != 0
		case requestBundle:
			m.bundle = v != 0
		}
		return n
	case protowire.Fixed64Type:
		v, n := protowire.ConsumeFixed64(b)
		if num == requestSpeed {
			m.speed = math.Float64frombits(v)
		}
		return n
	case protowire.BytesType:
		v, n := protowire.ConsumeString(b)
		switch num {
		case requestRunID:
			m.run = v
		case requestAfterID:
			m.afterID = v
		case requestProfile:
			m.profile = v
		case requestChildren:
			m.children = append(m.children, v)
		case requestTypes:
			m.types = append(m.types, v)
		}
		return n
	}
	return protowire.ConsumeFieldValue(num, typ, b)
}
