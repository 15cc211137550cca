package dialecttest

import (
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
)

// rooms declares sample.v1.Rooms, as an encoded FileDescriptorSet; saying and said are its messages.
var rooms, saying, said = declare()

func declare() ([]byte, protoreflect.MessageDescriptor, protoreflect.MessageDescriptor) {
	field := func(name string, n int32, t descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &t, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	const text, number = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_INT64
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{
		Name: proto.String("sample/v1/rooms.proto"), Package: proto.String("sample.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Saying"), Field: []*descriptorpb.FieldDescriptorProto{field("run", 1, text), field("text", 2, text)}},
			{Name: proto.String("Said"), Field: []*descriptorpb.FieldDescriptorProto{field("seq", 1, number)}},
		},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Rooms"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Say"), InputType: proto.String(".sample.v1.Saying"), OutputType: proto.String(".sample.v1.Said")},
		}}},
	}}}
	files, err := protodesc.NewFiles(set)
	b, merr := proto.Marshal(set)
	if err != nil || merr != nil {
		panic("dialecttest: the descriptor is wrong")
	}
	file, _ := files.FindFileByPath("sample/v1/rooms.proto")
	return b, file.Messages().Get(0), file.Messages().Get(1)
}

// routes are one: an HTTP path and a unary method.
func (d Talk) routes() []protocol.Route {
	return []protocol.Route{{Pattern: "POST /talk/say", RPC: "/sample.v1.Rooms/Say", MaxMessage: 1 << 10, Needs: auth.ScopeWrite, Writes: true, Serve: d.say}}
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
	in, out := dynamicpb.NewMessage(saying), dynamicpb.NewMessage(said)
	if decode(body, in) != nil {
		return dialect.Refuse(dialect.ErrBadRequest, "not a Saying")
	}
	seq, err := say(c, in.Get(saying.Fields().Get(0)).String(), in.Get(saying.Fields().Get(1)).String())
	if err != nil {
		return err
	}
	out.Set(said.Fields().Get(0), protoreflect.ValueOfInt64(int64(seq)))
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
