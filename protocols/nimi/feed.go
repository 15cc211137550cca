package nimi

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// What the ids of feeds' runs, and the types of their events, begin with.
const (
	feedRun  = "runtime-"
	feedType = "custom.runtime."
)

// FeedRun returns the id of a feed's run; of StreamMessage it is the beginning of the ids.
func FeedRun(feed string) string { return feedRun + feed }

// FeedType returns the type of a feed's events.
func FeedType(feed string) string { return feedType + feed }

// Feeds are the runs of a tenant that never end, and that ingest fills (docs/dialects/runtime.md).
func Feeds() schema.Feeds {
	return schema.Feeds{Prefix: feedRun, Is: func(run string) bool {
		name := strings.TrimPrefix(run, feedRun)
		switch name {
		case StreamAccount, StreamMemory, StreamTransfer, StreamProvider:
			return true
		}
		return strings.HasPrefix(name, StreamMessage+"-")
	}}
}

// MessageRun is the run of the messages for an app.
func MessageRun(app string) string {
	sum := sha256.Sum256([]byte(app))
	return FeedRun(StreamMessage) + "-" + hex.EncodeToString(sum[:16])
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
	return &feed{req: req, typ: FeedType(req.Stream), make: feedMessages[req.Stream]}
}

// FeedJSON reads what is fed: fields that the contract has not are passed over.
var FeedJSON = protojson.UnmarshalOptions{DiscardUnknown: true}

// Project makes the frame of a record. What is no message of the feed is not shown.
func (p *feed) Project(out *dialect.Frames, r schema.Record) error {
	if string(r.Type) != p.typ || r.Child != nil {
		return nil
	}
	m := p.make()
	if FeedJSON.Unmarshal(r.Payload(), m) != nil || !p.isWanted(m) {
		return nil
	}
	if f := m.ProtoReflect().Descriptor().Fields().ByName("sequence"); f != nil {
		m.ProtoReflect().Set(f, protoreflect.ValueOfUint64(uint64(r.Seq)))
	}
	if a, ok := m.(*runtimev1.AppMessageEvent); ok && a.GetTimestamp() == nil {
		_, ts, _ := r.Envelope()
		if at, err := time.Parse(time.RFC3339Nano, string(ts)); err == nil {
			a.Timestamp = timestamppb.New(at)
		}
	}
	return add(out, m, false)
}

// Unread returns the feed of which an event is that no client of it is shown, "" for none.
func Unread(run string, e *schema.Event) string {
	if !Feeds().Has(run) {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(run, FeedRun("")), "-")
	switch {
	case e.Type != FeedType(name):
	case name == StreamProvider:
		if readProvider(e.Payload) != nil {
			return ""
		}
	case FeedJSON.Unmarshal(e.Payload, feedMessages[name]()) == nil:
		return ""
	}
	return name
}

// isWanted reports whether the client asked for such a message.
func (p *feed) isWanted(m proto.Message) bool {
	switch m := m.(type) {
	case *runtimev1.MemoryEvent:
		return among(p.req.Form, m.GetBank().GetScope())
	case *runtimev1.AppMessageEvent:
		return p.req.Form == "" || slices.Contains(strings.Split(p.req.Form, "\n"), m.GetFromAppId())
	}
	return true
}
