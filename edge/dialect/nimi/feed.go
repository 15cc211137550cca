package nimi

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"agentstream/edge/dialect"
	"agentstream/schema"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
)

// MessageRun is the run of the messages for an app.
func MessageRun(app string) string {
	sum := sha256.Sum256([]byte(app))
	return schema.FeedRun(StreamMessage) + "-" + hex.EncodeToString(sum[:16])
}

// openFeed reads a request for a feed. A feed that nobody has fed yet is silent.
func openFeed(req dialect.Request, in dialect.Input) (_ dialect.Request, err error) {
	req.Run, req.Await, req.Kept = schema.FeedRun(in.Stream), true, true
	switch in.Stream {
	case StreamAccount:
		m, err := Read(in.Body, &runtimev1.SubscribeAccountSessionEventsRequest{})
		if err == nil {
			req.Cursor.Seq, err = sequence(m.GetAfterSequence())
		}
		return req, err
	case StreamMemory:
		m, err := Read(in.Body, &runtimev1.SubscribeMemoryEventsRequest{})
		if err != nil {
			return req, err
		}
		for _, s := range m.GetScopeFilters() {
			req.Form += string(rune('0' + s))
		}
		req.Cursor.Seq, err = cursor(m.GetCursor())
		return req, err
	case StreamMessage:
		m, err := Read(in.Body, &runtimev1.SubscribeAppMessagesRequest{})
		if err != nil {
			return req, err
		}
		req.Run, req.Form = MessageRun(m.GetAppId()), strings.Join(m.GetFromAppIds(), "\n")
		req.Cursor.Seq, err = cursor(m.GetCursor())
		return req, err
	case StreamProvider:
		req.Newest, req.Kept = true, false
	}
	_, err = Read(in.Body, &runtimev1.WatchLocalTransfersRequest{}) // no request here has a field
	return req, err
}

// feed shows the messages of one kind.
type feed struct {
	req  dialect.Request
	typ  string
	make func() proto.Message
}

var feedMessages = map[string]func() proto.Message{
	StreamAccount:  func() proto.Message { return &runtimev1.AccountSessionEvent{} },
	StreamMemory:   func() proto.Message { return &runtimev1.MemoryEvent{} },
	StreamMessage:  func() proto.Message { return &runtimev1.AppMessageEvent{} },
	StreamTransfer: func() proto.Message { return &runtimev1.LocalTransferProgressEvent{} },
}

func newFeed(req dialect.Request) *feed {
	return &feed{req: req, typ: schema.FeedType(req.Stream), make: feedMessages[req.Stream]}
}

// FeedJSON reads what is fed: fields that the contract has not are passed over.
var FeedJSON = protojson.UnmarshalOptions{DiscardUnknown: true}

// Project makes the frame of a record. What is no message of the feed is not shown.
func (p *feed) Project(out *dialect.Frames, r schema.Record) error {
	if string(r.Type) != p.typ || r.Child != nil {
		return nil
	}
	m := p.make()
	if FeedJSON.Unmarshal(r.Payload(), m) != nil || !p.wants(m) {
		return nil
	}
	if f := m.ProtoReflect().Descriptor().Fields().ByName("sequence"); f != nil {
		m.ProtoReflect().Set(f, protoreflect.ValueOfUint64(uint64(r.Seq)))
	}
	return add(out, m, false)
}

// Bad returns the feed of which an event is that no client of it is shown, "" for none.
func Bad(run string, e *schema.Event) string {
	if !schema.IsFeed(run) {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(run, schema.FeedRun("")), "-")
	switch {
	case e.Type != schema.FeedType(name):
	case name == StreamProvider:
		if readProvider(e.Payload) != nil {
			return ""
		}
	case FeedJSON.Unmarshal(e.Payload, feedMessages[name]()) == nil:
		return ""
	}
	return name
}

// wants reports whether the client asked for such a message.
func (p *feed) wants(m proto.Message) bool {
	if p.req.Form == "" {
		return true
	}
	switch m := m.(type) {
	case *runtimev1.MemoryEvent:
		return strings.ContainsRune(p.req.Form, rune('0'+m.GetBank().GetScope()))
	case *runtimev1.AppMessageEvent:
		for from := range strings.SplitSeq(p.req.Form, "\n") {
			if from == m.GetFromAppId() {
				return true
			}
		}
		return false
	}
	return true
}
