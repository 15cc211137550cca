package natsjs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// ackTimeout bounds the wait for an acknowledgement when the caller sets no bound.
const ackTimeout = natskit.Try

// acks sends packs and waits for their acknowledgements. It does what jetstream.PublishMsg does, on one
// subscription of its own and without its options, maps and reflection: an append of one event is mostly that.
type acks struct {
	nc     *nats.Conn
	stored func(p schema.Pack, copied bool) // see Config
	missed func()
	short  bool
	wire   *natskit.WireTap // nil: there is none, or another log has it
	out    sync.Pool        // of *outgoing

	mu      sync.Mutex
	sub     *nats.Subscription // of all replies; nil until the first append
	prefix  string             // of their subjects
	sent    uint64             // numbers them
	waiting map[uint64]*outgoing
	// the newest of them to a subject, by what follows schema.StorePrefix: those whose copies may be taken
	named  map[string]*outgoing
	closed bool // no answer comes any more
}

// outgoing is one message on its way. It is used again once its answer is in, or can no longer come.
type outgoing struct {
	stream string
	msg    nats.Msg
	slots  map[string][]string // values of headers, kept for the next message
	header []byte              // the same as text, for a wire
	own    int                 // how much of it says which pack it is
	copied bool                // its copy has come, and was not passed on
	reply  chan publishResult  // holds one
	timer  *time.Timer
}

// publishResult is what the log has answered: a position, or why there is none.
type publishResult struct {
	seq uint64
	err error
}

// patience is how long an answer is waited for before the end of the context is, too. Nearly all answers are
// here long before, and to wait for a context costs more than a timer that is used again.
const patience = 20 * time.Millisecond

// await waits for the answer, false: until ctx ended.
func (o *outgoing) await(ctx context.Context) (publishResult, bool) {
	d := patience
	if at, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(at))
	}
	o.timer.Reset(d)
	select {
	case m := <-o.reply:
		o.timer.Stop()
		return m, true
	case <-o.timer.C:
	}
	select {
	case m := <-o.reply:
		return m, true
	case <-ctx.Done():
		return publishResult{}, false
	}
}

// write writes a header as text.
func (o *outgoing) write(name, value string) {
	o.header = append(append(append(append(o.header, name...), ": "...), value...), "\r\n"...)
}

// set sets the value of a header.
func (o *outgoing) set(name, value string) {
	v := o.slots[name]
	if v == nil {
		v = make([]string, 1)
		o.slots[name] = v
	}
	v[0] = value
	o.msg.Header[name] = v
}

func (a *acks) get() *outgoing {
	if o, ok := a.out.Get().(*outgoing); ok {
		return o
	}
	o := &outgoing{msg: nats.Msg{Header: make(nats.Header, 16)}, slots: make(map[string][]string, 16),
		reply: make(chan publishResult, 1)}
	o.timer = time.NewTimer(time.Hour)
	o.timer.Stop()
	return o
}

func (a *acks) put(o *outgoing) {
	clear(o.msg.Header)
	o.msg.Data = nil
	a.out.Put(o)
}

// publish sends the pack, to be stored if the newest message that matches filter is at after, and returns its
// position. Errors are those of jetstream.PublishMsg.
func (a *acks) publish(ctx context.Context, p *schema.Pack, subject, filter, stream string, after uint64) (uint64,
	error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if a.nc.IsReconnecting() { // nats.go would keep the pack and send it when its caller has left
		return 0, nats.ErrConnectionReconnecting
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ackTimeout)
		defer cancel()
	}
	o := a.get()
	defer a.put(o)
	o.msg.Subject, o.msg.Data, o.stream, o.copied = subject, p.Body, stream, false
	id, err := a.expect(o)
	if err != nil {
		return 0, err
	}
	if err := a.send(o, p, filter, after); err != nil {
		a.giveUp(id, o)
		return 0, err
	}
	got, answered := o.await(ctx)
	if !answered {
		if got, answered = a.giveUp(id, o); !answered {
			got.err = ctx.Err()
		}
	}
	if got.err == nil && a.stored != nil {
		a.stored(p.At(got.seq), o.copied)
	} else if o.copied {
		a.missed()
	}
	return got.seq, got.err
}

// wired is the size up to which packs are sent by the wire. A larger one costs much more than its way, and the client
// library knows how much a server takes.
const wired = 64 << 10

// send sends the pack as the message of o.
func (a *acks) send(o *outgoing, p *schema.Pack, filter string, after uint64) error {
	direct := a.wire != nil && len(p.Body) <= wired && a.wire.Ready()
	set := o.set
	if direct {
		o.header, set = append(o.header[:0], "NATS/1.0\r\n"...), o.write
	}
	if a.short {
		set(schema.HeaderPack, string(p.AppendHeader(make([]byte, 0, 160))))
	} else {
		p.EachHeader(set)
	}
	o.own = len(o.header)
	set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(after, 10))
	set(jetstream.ExpectedLastSubjSeqSubjHeader, filter)
	set(jetstream.ExpectedStreamHeader, o.stream)
	if !direct {
		return a.nc.PublishMsg(&o.msg)
	}
	o.header = append(o.header, "\r\n"...)
	if int64(len(o.header)+len(o.msg.Data)) > a.nc.MaxPayload() { // the server would cut the connection of all
		return nats.ErrMaxPayload
	}
	if a.missed != nil && !a.short {
		a.mu.Lock()
		a.named[nameOf(o)] = o
		a.mu.Unlock()
	}
	if !a.wire.Publish(o.msg.Subject, o.msg.Reply, o.header, o.msg.Data, p.Patient) {
		return nats.ErrConnectionReconnecting
	}
	return nil
}

// expect begins to wait for the answer to o, which gets the subject for it.
func (a *acks) expect(o *outgoing) (id uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, nats.ErrConnectionClosed
	}
	if a.sub == nil {
		prefix := a.nc.NewInbox() + "."
		if a.wire = natskit.TapOf(a.nc); a.wire != nil && !a.wire.DivertAnswers(prefix, a.read) {
			a.wire = nil
		}
		sub, err := a.nc.Subscribe(prefix+"*", a.receive)
		if err != nil {
			return 0, err
		}
		a.sub, a.prefix, a.waiting, a.named = sub, prefix, make(map[uint64]*outgoing), make(map[string]*outgoing)
		sub.SetClosedHandler(func(string) { a.close() })
	}
	a.sent++
	a.waiting[a.sent] = o
	o.msg.Reply = string(strconv.AppendUint(append(make([]byte, 0, 64), a.prefix...), a.sent, 36))
	return a.sent, nil
}

// read is given answers by the wire.
func (a *acks) read(name, data []byte) {
	id, err := strconv.ParseUint(string(name), 36, 64)
	a.hand(id, err == nil, data)
}

// receive handles the answers that the client library hands over: all without a wire, and those that are none
// of a stream.
func (a *acks) receive(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[min(len(a.prefix), len(m.Subject)):], 36, 64)
	data := m.Data
	if len(data) == 0 && m.Header.Get("Status") == noResponders {
		data = nil
	} else if data == nil {
		data = []byte{}
	}
	a.hand(id, err == nil, data)
}

// hand hands an answer to the append that waits for it. data is nil where nobody listens. The channel has room, because
// what is no longer waited for is not in the map.
func (a *acks) hand(id uint64, ours bool, data []byte) {
	a.mu.Lock()
	o := a.waiting[id]
	if o != nil && ours {
		a.forget(id, o)
		seq, err := ackOf(data, o.stream)
		o.reply <- publishResult{seq, err}
	}
	a.mu.Unlock()
	if (o == nil || !ours) && a.missed != nil {
		a.missed()
	}
}

// nameOf returns by what an append's copy is known.
func nameOf(o *outgoing) string { return strings.TrimPrefix(o.msg.Subject, schema.StorePrefix) }

// forget ends that an answer, or a copy, is taken for that of o. It needs mu.
func (a *acks) forget(id uint64, o *outgoing) {
	delete(a.waiting, id)
	if name := nameOf(o); a.named[name] == o {
		delete(a.named, name)
	}
}

// claimCopy is Log.ClaimCopy.
func (a *acks) claimCopy(name, header []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.named[string(name)]
	if o == nil || o.copied || !bytes.HasPrefix(header, o.header[:o.own]) {
		return false
	}
	o.copied = true
	return true
}

// giveUp ends the wait. late: the answer came at the same moment, and counts.
func (a *acks) giveUp(id uint64, o *outgoing) (got publishResult, late bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(id, o)
	select {
	case got = <-o.reply:
		return got, true
	default:
		return publishResult{}, false
	}
}

// close ends all waits: no answer will come.
func (a *acks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	err := nats.ErrDisconnected // drained: the answer may have been on its way
	if a.nc.IsClosed() {
		err = nats.ErrConnectionClosed
	}
	for id, o := range a.waiting {
		a.forget(id, o)
		o.reply <- publishResult{err: err}
	}
}

// noResponders is the status of an answer of the server itself: there is no listener on the subject.
const noResponders = "503"

// ackOf reads an acknowledgement. The server writes nearly all of them from a template; any other text is left
// to the parser.
func ackOf(data []byte, stream string) (uint64, error) {
	if data == nil {
		return 0, jetstream.ErrNoStreamResponse
	}
	if seq, ok := plainAck(data, stream); ok {
		return seq, nil
	}
	var ack struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, jetstream.ErrInvalidJSAck
	}
	if ack.Error != nil {
		return 0, fmt.Errorf("nats: %w", ack.Error)
	}
	if ack.Stream == "" {
		return 0, jetstream.ErrInvalidJSAck
	}
	return ack.Seq, nil
}

// plainAck reads {"stream":"<stream>","seq":<digits>}.
func plainAck(b []byte, stream string) (seq uint64, ok bool) {
	for _, part := range [...]string{`{"stream":"`, stream, `","seq":`} {
		if len(b) < len(part) || string(b[:len(part)]) != part {
			return 0, false
		}
		b = b[len(part):]
	}
	n := len(b) - 1
	if n < 1 || n > 18 || b[n] != '}' {
		return 0, false
	}
	for _, c := range b[:n] {
		if c < '0' || c > '9' {
			return 0, false
		}
		seq = seq*10 + uint64(c-'0')
	}
	return seq, true
}
