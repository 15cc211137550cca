package dialecttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
)

// declare returns an encoded FileDescriptorSet with a service of one method, which takes and returns a well-known message.
func declare(service, method string, of protoreflect.FileDescriptor, message string, stream bool) []byte {
	m := &descriptorpb.MethodDescriptorProto{Name: &method, InputType: proto.String(".google.protobuf." + message), ServerStreaming: &stream}
	m.OutputType = m.InputType
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(of), {
		Name: proto.String("sample/v1/" + service + ".proto"), Package: proto.String("sample.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{of.Path()},
		Service:    []*descriptorpb.ServiceDescriptorProto{{Name: &service, Method: []*descriptorpb.MethodDescriptorProto{m}}},
	}}}
	b, _ := proto.Marshal(set) // whether it is right, the edge finds out
	return b
}

// routes are an HTTP path that is a unary method as well, and one that makes tickets.
func (d Talk) routes() []protocol.Route {
	return []protocol.Route{
		{Pattern: "POST /talk/say", RPC: "/sample.v1.Rooms/Say", MaxMessage: 1 << 10, Needs: auth.ScopeWrite, Writes: true, Serve: d.say},
		{Pattern: "GET /talk/tickets/{run}", Needs: auth.ScopeRead, Serve: protocol.Bounded(ticket)},
	}
}

// ticket makes one for a run that is there.
func ticket(ctx context.Context, c *protocol.Call) error {
	run := c.Path("run")
	if _, _, _, err := c.Locate(ctx, run); err != nil {
		return err
	}
	text, until, err := c.Ticket(ctx, run)
	if err == nil {
		c.Reply(http.StatusOK, fmt.Appendf(nil, `{"attach":%q,"until":%q}`, text, until.UTC().Format(time.RFC3339)))
	}
	return err
}

func (Talk) say(c *protocol.Call) error {
	body, err := c.Message()
	if err != nil {
		return err
	}
	decode, encode := protojson.Unmarshal, protojson.Marshal
	if c.Transport() == dialect.GRPC {
		decode, encode = proto.Unmarshal, proto.Marshal
	}
	in := &structpb.Struct{}
	if decode(body, in) != nil {
		return dialect.Refuse(dialect.ErrBadRequest, "not an object")
	}
	seq, err := say(c, in.GetFields()["run"].GetStringValue(), in.GetFields()["text"].GetStringValue())
	if err != nil {
		return err
	}
	out := &structpb.Struct{Fields: map[string]*structpb.Value{"seq": structpb.NewNumberValue(float64(seq))}}
	if body, err = encode(out); err == nil {
		c.Reply(http.StatusOK, body)
	}
	return err
}

// say stores a text and returns its place.
func say(c *protocol.Call, run, text string) (schema.Seq, error) {
	payload, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return 0, err
	}
	ctx, cancel := c.Bounded()
	defer cancel()
	receipt, err := c.Append(ctx, run, []schema.Event{{Type: "custom.said", Payload: payload}}, producers.AppendOptions{})
	return receipt.Last, err
}
