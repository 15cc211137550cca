package dialecttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
)

// routes are a path that is a unary method as well, tickets, and notes: what changes a run, or a child by its own id, as the
// projector has it, and pages of that.
func routes() []protocol.Route {
	return []protocol.Route{
		{Pattern: "POST /talk/say", RPC: "/sample.v1.Sample/Say", MaxMessage: 1 << 10, Needs: auth.ScopeWrite, Writes: true, Serve: protocol.Bounded(said)},
		{Pattern: "GET /talk/tickets/{run}", Needs: auth.ScopeRead, Serve: protocol.Bounded(ticket)},
		{Pattern: "POST /sample/{run}/notes", Needs: auth.ScopeWrite, Writes: true, Serve: protocol.Bounded(note)},
		{Pattern: "GET /sample/{run}/notes", Needs: auth.ScopeRead, Serve: protocol.Bounded(noted)},
	}
}

// service declares sample.v1.Sample, whose messages are texts: an encoded FileDescriptorSet.
func service() []byte {
	text, types := proto.String(".google.protobuf.StringValue"), protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)
	b, _ := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{types, { // whether it is right, the edge finds out
		Name: proto.String("sample/v1/sample.proto"), Package: proto.String("sample.v1"), Syntax: proto.String("proto3"), Dependency: []string{types.GetName()},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Sample"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Watch"), InputType: text, OutputType: text, ServerStreaming: proto.Bool(true)},
			{Name: proto.String("Say"), InputType: text, OutputType: text},
		}}},
	}}})
	return b
}

// wrap makes a JSON text a message of gRPC, unwrap takes it out.
func wrap(text []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), text)
}

func unwrap(message []byte) ([]byte, error) {
	var m wrapperspb.StringValue
	if proto.Unmarshal(message, &m) != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "not a StringValue")
	}
	return []byte(m.GetValue()), nil
}

// said stores what a message says, and answers in its coding.
func said(ctx context.Context, c *protocol.Call) error {
	body, err := c.Message()
	if err == nil && c.Transport() == dialect.GRPC {
		body, err = unwrap(body)
	}
	if err != nil {
		return err
	}
	a, err := read(dialect.Input{Body: body})
	if err != nil {
		return err
	}
	seq, err := say(ctx, c, a)
	if err != nil {
		return err
	}
	answer := fmt.Appendf(nil, `{"seq":%d}`, seq)
	if c.Transport() == dialect.GRPC {
		answer = wrap(answer)
	}
	c.Reply(http.StatusOK, answer)
	return nil
}

// event is a text or a message as an event.
func event(typ, field, text, child string) []schema.Event {
	payload, _ := json.Marshal(map[string]string{field: text}) // it never fails
	return []schema.Event{{Type: typ, ChildID: child, Payload: payload}}
}

// say stores a text and returns its place.
func say(ctx context.Context, c *protocol.Call, a asked) (schema.Seq, error) {
	receipt, err := c.Append(ctx, a.Run, event("custom.said", "text", a.Text, ""), producers.AppendOptions{})
	return receipt.Last, err
}

// ticket makes one for a run that is there.
func ticket(ctx context.Context, c *protocol.Call) error {
	if _, _, _, err := c.Locate(ctx, c.Path("run")); err != nil {
		return err
	}
	text, until, err := c.Ticket(ctx, c.Path("run"))
	if err == nil {
		c.Reply(http.StatusOK, fmt.Appendf(nil, `{"attach":%q,"until":%q}`, text, until.UTC().Format(time.RFC3339)))
	}
	return err
}

// begin appends what a user says, and answers with the stream from there on, to the end of the turn.
func begin(c *protocol.Call, in dialect.Input) (dialect.Request, error) {
	a, req, err := open(in)
	if err != nil {
		return req, err
	}
	opt, err := c.Keyed()
	if err != nil {
		return req, err
	}
	ctx, cancel := c.Bounded()
	defer cancel()
	opt.Whole, opt.Check = true, func(_ context.Context, head schema.Head) error {
		switch {
		case !head.Exists():
			return dialect.ErrNotFound
		case head.State.Final():
			return schema.ErrEnded
		}
		return nil
	}
	at, err := c.Append(ctx, req.Run, event(schema.TypeCommandMessage, "content", a.Text, ""), opt)
	req.Cursor = dialect.Cursor{Seq: at.First - 1}
	return req, err
}

// full refuses a note behind which there would be too much text. It has a code of the protocol's own.
type full struct{ text int }

func (e full) Error() string { return "full: " + e.Words() }
func (e full) Unwrap() error { return dialect.ErrGone }
func (e full) Words() string { return fmt.Sprintf("there are %d bytes of text", e.text) } // for the client
func (e full) Named() string { return "FULL" }

// note appends a text, as long as there is not much.
func note(ctx context.Context, c *protocol.Call) error {
	opt, body, err := c.KeyedBody("application/json")
	if err != nil {
		return err
	}
	a, err := read(dialect.Input{Body: body})
	if err != nil {
		return err
	}
	run, child, _, err := c.Locate(ctx, c.Path("run"))
	if err != nil {
		return err
	}
	allow := func(p *projector) error {
		switch {
		case a.Text == "":
			return protocol.ErrDone
		case p.text > 64:
			return full{p.text}
		}
		return nil
	}
	at, err := protocol.Change[*projector]{Request: dialect.Request{Run: run, Child: child}, Options: opt,
		Events: event(schema.TypeTextDelta, "text", a.Text, child), Allow: allow}.Once(ctx, c)
	if err == nil {
		c.Reply(http.StatusOK, fmt.Appendf(nil, `{"seq":%d}`, at.Last))
	}
	return err
}

// noted answers with a page of the types of a run's records, the newest first with ?down.
func noted(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	run, child, _, err := c.Locate(ctx, c.Path("run"))
	if err != nil {
		return err
	}
	h := protocol.History{Call: c, Request: dialect.Request{Run: run, Child: child, Select: only(slotType)}}
	if h.Limit, err = q.Number("limit", 2, 10); err != nil {
		return err
	}
	head, _, err := protocol.Newest[*projector](ctx, c, h.Request)
	if err != nil {
		return err
	}
	h.Newest = head.Last
	from, look := protocol.Spot{Seq: 1}, h.Up
	if len(q["down"]) > 0 {
		from.Seq, look = head.Last+1, h.Down
	}
	page, err := q.One("page")
	if text, ok := protocol.ReadPageToken(run, page); ok {
		from, err = protocol.ParseSpot(text)
	} else if page != "" {
		err = dialect.Refuse(schema.ErrBadCursor, "not a page of this run")
	}
	if err != nil {
		return err
	}
	if err := look(ctx, from); err != nil {
		return err
	}
	next := ""
	if h.More {
		next = protocol.PageToken(run, h.Next.String())
	}
	c.Reply(http.StatusOK, fmt.Appendf(nil, `{"notes":[%s],"next":%q}`, h.Append(nil), next))
	return nil
}
