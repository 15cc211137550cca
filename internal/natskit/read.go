package natskit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/schema"
)

// Msg is one stored message.
type Msg struct {
	Subject string
	Header  map[string][]string
	Data    []byte
	Seq     uint64 // position in the stream
	Time    time.Time
}

// ErrNoMessage reports that nothing in the stream matches.
var ErrNoMessage = errors.New("no message matches")

// ErrCut reports that a direct-get batch ended without the server's end marker: what came before it
// is not the whole.
var ErrCut = errors.New("batch was cut short")

// LastFromLeader reads the newest message that matches filter from the stream's leader, so that a
// caller sees its own and everybody else's acknowledged writes. It wraps ErrNoMessage when there is
// none.
func LastFromLeader(ctx context.Context, nc *nats.Conn, stream, filter string) (Msg, error) {
	return fromLeader(ctx, nc, stream, `{"last_by_subj":`+strconv.Quote(filter)+`}`)
}

// NextFromLeader reads the first message at position seq or behind it that matches filter.
func NextFromLeader(ctx context.Context, nc *nats.Conn, stream, filter string, seq uint64) (Msg, error) {
	return fromLeader(ctx, nc, stream, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, seq, filter))
}

// AtFromLeader reads the message at a position. It wraps ErrNoMessage when there is none.
func AtFromLeader(ctx context.Context, nc *nats.Conn, stream string, seq uint64) (Msg, error) {
	return fromLeader(ctx, nc, stream, fmt.Sprintf(`{"seq":%d}`, seq))
}

// fromLeader asks until the leader answers or ctx ends. Other servers are silent, and so are all while there
// is no leader.
func fromLeader(ctx context.Context, nc *nats.Conn, stream, request string) (m Msg, err error) {
	err = repeatOn(ctx, nc, stream, func(ctx context.Context, wait time.Duration) (err error) {
		once, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		m, err = askLeader(once, nc, stream, request)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read %s from the leader: %w", stream, err)
	}
	return m, err
}

func askLeader(ctx context.Context, nc *nats.Conn, stream, request string) (Msg, error) {
	reply, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(request))
	if err != nil {
		return Msg{}, err
	}
	var r struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Hdrs    []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return Msg{}, fmt.Errorf("answer: %w", err)
	}
	if r.Error != nil {
		if r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return Msg{}, ErrNoMessage
		}
		return Msg{}, r.Error
	}
	if r.Message == nil {
		return Msg{}, errors.New("empty answer")
	}
	h, err := parseHeader(r.Message.Hdrs)
	if err != nil {
		return Msg{}, fmt.Errorf("headers: %w", err)
	}
	return Msg{Subject: r.Message.Subject, Header: h, Data: r.Message.Data, Seq: r.Message.Seq, Time: r.Message.Time}, nil
}

// parseHeader reads a NATS header block: a version line, then MIME headers.
func parseHeader(b []byte) (map[string][]string, error) {
	_, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok {
		return nil, nil
	}
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(rest))).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	return h, nil
}

// BatchRequest asks for one page by direct get. Any replica may answer: the page may lag behind the
// leader.
type BatchRequest struct {
	Seq       uint64   `json:"seq,omitempty"`          // first position to look at
	NextBy    string   `json:"next_by_subj,omitempty"` // filter
	Batch     int      `json:"batch,omitempty"`        // most messages
	MaxBytes  int      `json:"max_bytes,omitempty"`    // most bytes
	MultiLast []string `json:"multi_last,omitempty"`   // newest message of each matching subject
}

// maxMultiLast is the most messages that the server answers a multi_last request with.
const maxMultiLast = 1024

// Page is the content of a batch. More reports whether messages that match follow it.
type Page struct {
	Msgs []Msg
	More bool
}

// ErrTooManySubjects reports that a multi_last request matched over 1,024 subjects.
var ErrTooManySubjects = errors.New("too many subjects match")

// ReadPage is ReadBatch until a server answers or ctx ends. A page that comes slowly is given more time with
// every try.
func ReadPage(ctx context.Context, nc *nats.Conn, stream string, req BatchRequest) (page Page, err error) {
	err = repeatOn(ctx, nc, stream, func(ctx context.Context, wait time.Duration) (err error) {
		page, err = ReadBatch(ctx, nc, stream, req, 4*wait)
		return err
	})
	return page, err
}

// ReadBatch reads one page by direct get. It insists on the server's end marker and wraps ErrCut
// when the page ends otherwise: the deadline of ctx, or idle time between two messages. No match is
// an empty page.
func ReadBatch(ctx context.Context, nc *nats.Conn, stream string, req BatchRequest, idle time.Duration) (Page, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Page{}, fmt.Errorf("read batch of %s: %w", stream, err)
	}
	inbox := nc.NewInbox()
	// The channel takes a whole page with its end. SubscribeSync would make one for 65,536 messages:
	// half a megabyte to clear and to collect for every page, and for every reader at the same time.
	msgs := make(chan *nats.Msg, max(req.Batch, maxMultiLast)+1)
	sub, err := nc.ChanSubscribe(inbox, msgs)
	if err != nil {
		return Page{}, fmt.Errorf("read batch of %s: %w", stream, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sub.SetClosedHandler(func(string) { cancel(nats.ErrConnectionClosed) })
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return Page{}, fmt.Errorf("read batch of %s: %w", stream, err)
	}
	silence := time.NewTimer(idle)
	defer silence.Stop()
	var page Page
	for {
		silence.Reset(idle)
		m, err := next(ctx, msgs, silence)
		if err != nil {
			return Page{}, fmt.Errorf("read batch of %s: %d messages, then: %w: %w", stream, len(page.Msgs), ErrCut, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			msg, err := parseStored(m)
			if err != nil {
				return Page{}, fmt.Errorf("read batch of %s: %w", stream, err)
			}
			page.Msgs = append(page.Msgs, msg)
		case "204":
			pending, _ := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			page.More = pending > 0
			return page, nil
		case "404":
			return page, nil
		case "413":
			return Page{}, fmt.Errorf("read batch of %s: %w", stream, ErrTooManySubjects)
		case "503":
			return Page{}, fmt.Errorf("read batch of %s: %w", stream, nats.ErrNoResponders)
		default:
			return Page{}, fmt.Errorf("read batch of %s: status %s %s", stream, status, m.Header.Get("Description"))
		}
	}
}

func next(ctx context.Context, msgs <-chan *nats.Msg, silence *time.Timer) (*nats.Msg, error) {
	select {
	case m := <-msgs:
		return m, nil
	case <-silence.C:
		return nil, context.DeadlineExceeded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// parseStored returns a message that a stream has stored, with its position.
func parseStored(m *nats.Msg) (Msg, error) {
	seq, err := strconv.ParseUint(m.Header.Get(schema.HeaderPosition), 10, 64)
	if err != nil {
		return Msg{}, fmt.Errorf("message without its position: %w", err)
	}
	return Msg{Subject: m.Header.Get("Nats-Subject"), Header: m.Header, Data: m.Data, Seq: seq}, nil
}
