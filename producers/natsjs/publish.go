package natsjs

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
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
	stored func(schema.Pack) // see Config
	missed func()
	short  bool
	out    sync.Pool // of *outgoing

	mu      sync.Mutex
	sub     *nats.Subscription // of all replies; nil until the first append
	prefix  string             // of their subjects
	sent    uint64             // numbers them
	waiting map[uint64]*outgoing
	closed  bool // no answer comes any more
}

// outgoing is one message on its way. It is used again once its answer is in, or can no longer come.
type outgoing struct {
	pack   *schema.Pack
	stream string
	msg    nats.Msg
	slots  map[string][]string // values of headers, kept for the next message
	reply  chan *nats.Msg      // holds one; nil: no answer will come
	timer  *time.Timer
}

// patience is how long an answer is waited for before the end of the context is, too. Nearly all answers are
// here long before, and to wait for a context costs more than a timer that is used again.
const patience = 20 * time.Millisecond

// await waits for the answer, false: until ctx ended.
func (o *outgoing) await(ctx context.Context) (*nats.Msg, bool) {
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
		return nil, false
	}
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
	o := &outgoing{msg: nats.Msg{Header: make(nats.Header, 16)}, slots: make(map[string][]string, 16), reply: make(chan *nats.Msg, 1)}
	o.timer = time.NewTimer(time.Hour)
	o.timer.Stop()
	return o
}

func (a *acks) put(o *outgoing) {
	clear(o.msg.Header)
	o.msg.Data, o.pack = nil, nil
	a.out.Put(o)
}

// publish sends the pack, to be stored if the newest message that matches filter is at after, and returns its
// position. Errors are those of jetstream.PublishMsg.
func (a *acks) publish(ctx context.Context, p *schema.Pack, subject, filter, stream string, after uint64) (uint64, error) {
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
	o.msg.Subject, o.msg.Data, o.pack, o.stream = subject, p.Body, p, stream
	if a.short {
		o.set(schema.HeaderPack, string(p.AppendHeader(make([]byte, 0, 160))))
	} else {
		p.EachHeader(o.set)
	}
	o.set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(after, 10))
	o.set(jetstream.ExpectedLastSubjSeqSubjHeader, filter)
	o.set(jetstream.ExpectedStreamHeader, stream)
	id, err := a.expect(o)
	if err != nil {
		return 0, err
	}
	if err := a.nc.PublishMsg(&o.msg); err != nil {
		a.giveUp(id, o)
		return 0, err
	}
	reply, answered := o.await(ctx)
	if !answered {
		if reply, answered = a.giveUp(id, o); !answered {
			return 0, ctx.Err()
		}
	}
	if reply == nil && a.nc.IsClosed() {
		return 0, nats.ErrConnectionClosed
	}
	if reply == nil { // drained: the answer may have been on its way
		return 0, nats.ErrDisconnected
	}
	return ackOf(reply, stream)
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
		sub, err := a.nc.Subscribe(prefix+"*", a.take)
		if err != nil {
			return 0, err
		}
		a.sub, a.prefix, a.waiting = sub, prefix, make(map[uint64]*outgoing)
		sub.SetClosedHandler(func(string) { a.close() })
	}
	a.sent++
	a.waiting[a.sent] = o
	o.msg.Reply = string(strconv.AppendUint(append(make([]byte, 0, 64), a.prefix...), a.sent, 36))
	return a.sent, nil
}

// take hands an answer to the append that waits for it. The channel has room, because what is no longer
// waited for is not in the map.
func (a *acks) take(m *nats.Msg) {
	p, stored, waited := a.answer(m)
	switch {
	case stored && a.stored != nil:
		a.stored(p)
	case !waited && a.missed != nil:
		a.missed()
	}
}

// answer is take. When it was waited for and the pack was stored, it returns that as a reader would get it. The
// pack is its writer's again once the answer is in the channel.
func (a *acks) answer(m *nats.Msg) (p schema.Pack, stored, waited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, err := strconv.ParseUint(m.Subject[min(len(a.prefix), len(m.Subject)):], 36, 64)
	if err != nil {
		return schema.Pack{}, false, false
	}
	o := a.waiting[id]
	if o == nil {
		return schema.Pack{}, false, false
	}
	delete(a.waiting, id)
	if a.stored != nil {
		if seq, err := ackOf(m, o.stream); err == nil {
			p, stored = o.pack.At(seq), true
		}
	}
	o.reply <- m
	return p, stored, true
}

// giveUp ends the wait. late: the answer came at the same moment, and counts.
func (a *acks) giveUp(id uint64, o *outgoing) (reply *nats.Msg, late bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
	select {
	case reply = <-o.reply:
		return reply, true
	default:
		return nil, false
	}
}

// close ends all waits: no answer will come.
func (a *acks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for id, o := range a.waiting {
		delete(a.waiting, id)
		o.reply <- nil
	}
}

// noResponders is the status of an answer of the server itself: there is no listener on the subject.
const noResponders = "503"

// ackOf reads an acknowledgement. The server writes nearly all of them from a template; any other text is left
// to the parser.
func ackOf(m *nats.Msg, stream string) (uint64, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
		return 0, jetstream.ErrNoStreamResponse
	}
	if seq, ok := plainAck(m.Data, stream); ok {
		return seq, nil
	}
	var ack struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
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
