package native

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Field numbers of agent.v1.PublishRequest, PublishReceipt and PublishError.
const (
	publishEvent = 1
	publishKey   = 2

	receiptLine     = 1
	receiptRunID    = 2
	receiptFirst    = 3
	receiptLast     = 4
	receiptRoot     = 5
	receiptReplayed = 6
	receiptError    = 7

	errorCode    = 1
	errorMessage = 2
	errorField   = 3
	errorRetry   = 4
)

// eventNames are the fields of agent.v1.Event that hold one text.
var eventNames = map[protowire.Number]string{
	eventID: "id", eventTS: "ts", eventType: "type", eventRunID: "run_id", eventChildID: "child_id",
	eventTurnID: "turn_id", eventCause: "cause", eventActor: "actor",
}

// published is an event on its way to a line.
type published struct {
	texts          map[protowire.Number][]byte
	path           [][]byte
	seq, firstSeq  uint64
	extra, payload []byte
}

// AppendPublished appends the line that holds what a PublishRequest holds.
func (Dialect) AppendPublished(dst, message []byte) ([]byte, error) {
	var event, key []byte
	err := fields(message, func(n protowire.Number, v []byte, _ uint64) {
		switch n {
		case publishEvent:
			event = v
		case publishKey:
			key = v
		}
	})
	p := published{texts: make(map[protowire.Number][]byte, len(eventNames))}
	if err == nil {
		err = fields(event, p.setField)
	}
	if err != nil {
		return dst, err
	}
	dst = append(dst, `{"run_id":`...)
	dst = jsonscan.AppendString(dst, string(p.texts[eventRunID]))
	for n := protowire.Number(1); n <= eventActor; n++ {
		if name := eventNames[n]; n != eventRunID && len(p.texts[n]) > 0 {
			dst = jsonscan.AppendString(append(append(append(dst, `,"`...), name...), `":`...), string(p.texts[n]))
		}
	}
	if len(key) > 0 {
		dst = jsonscan.AppendString(append(dst, `,"key":`...), string(key))
	}
	return p.rest(dst)
}

// rest appends what is no single text, and the end.
func (p *published) rest(dst []byte) ([]byte, error) {
	if p.seq != 0 {
		dst = strconv.AppendUint(append(dst, `,"seq":`...), p.seq, 10)
	}
	if p.firstSeq != 0 {
		dst = strconv.AppendUint(append(dst, `,"first_seq":`...), p.firstSeq, 10)
	}
	for i, id := range p.path {
		begin := `,`
		if i == 0 {
			begin = `,"path":[`
		}
		dst = jsonscan.AppendString(append(dst, begin...), string(id))
	}
	if len(p.path) > 0 {
		dst = append(dst, ']')
	}
	extra, err := oneLine("extra", p.extra)
	if err != nil {
		return dst, err
	}
	if extra = bytes.TrimSpace(extra); len(extra) > 0 {
		if extra[0] != '{' || extra[len(extra)-1] != '}' {
			return dst, fmt.Errorf("extra is not a JSON object: %w", dialect.ErrBadRequest)
		}
		if extra = bytes.TrimSpace(extra[1 : len(extra)-1]); len(extra) > 0 {
			dst = append(append(dst, ','), extra...)
		}
	}
	payload, err := oneLine("payload", p.payload)
	if err != nil {
		return dst, err
	}
	if len(payload) > 0 {
		dst = append(append(dst, `,"payload":`...), payload...)
	}
	return append(dst, '}'), nil
}

// oneLine returns a JSON text without line breaks between its tokens.
func oneLine(name string, text []byte) ([]byte, error) {
	if !bytes.ContainsAny(text, "\r\n") {
		return text, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", name, schema.ErrMalformed)
	}
	return b.Bytes(), nil
}

// setField sets a field of the message that was read.
func (p *published) setField(n protowire.Number, v []byte, number uint64) {
	switch n {
	case eventSeq:
		p.seq = number
	case eventFirstSeq:
		p.firstSeq = number
	case eventPath:
		p.path = append(p.path, v)
	case eventExtra:
		p.extra = v
	case eventPayload:
		p.payload = v
	default:
		p.texts[n] = v
	}
}

// fields calls fn with each field that is a text, a message or a number. The error wraps dialect.ErrBadRequest.
func fields(message []byte, fn func(n protowire.Number, v []byte, number uint64)) error {
	bad := fmt.Errorf("it is not a message of the service: %w", dialect.ErrBadRequest)
	for len(message) > 0 {
		n, typ, size := protowire.ConsumeTag(message)
		if size < 0 {
			return bad
		}
		message = message[size:]
		switch typ {
		case protowire.BytesType:
			v, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return bad
			}
			fn(n, v, 0)
			message = message[size:]
		case protowire.VarintType:
			v, size := protowire.ConsumeVarint(message)
			if size < 0 {
				return bad
			}
			fn(n, nil, v)
			message = message[size:]
		default:
			if size = protowire.ConsumeFieldValue(n, typ, message); size < 0 {
				return bad
			}
			message = message[size:]
		}
	}
	return nil
}

// AppendReceipt appends a PublishReceipt.
func (Dialect) AppendReceipt(dst []byte, r dialect.Receipt) []byte {
	dst = appendInt(dst, receiptLine, int64(r.Line))
	dst = appendText(dst, receiptRunID, []byte(r.Run))
	dst = appendInt(dst, receiptFirst, int64(r.First))
	dst = appendInt(dst, receiptLast, int64(r.Last))
	dst = appendText(dst, receiptRoot, []byte(r.Root))
	if r.Replayed {
		dst = appendInt(dst, receiptReplayed, 1)
	}
	if r.Code == "" {
		return dst
	}
	var e []byte
	e = appendText(e, errorCode, []byte(r.Code))
	e = appendText(e, errorMessage, bytes.ToValidUTF8([]byte(r.Message), []byte("\uFFFD")))
	e = appendText(e, errorField, []byte(r.Field))
	e = appendInt(e, errorRetry, int64(r.Retry))
	return protowire.AppendBytes(protowire.AppendTag(dst, receiptError, protowire.BytesType), e)
}
