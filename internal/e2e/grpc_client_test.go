package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"agentstream/schema"
)

// soonAgain lets a connection be tried again soon. One that is being made has time: without a least time it would have
// none but that between two tries, and on a busy machine a connection takes longer.
var soonAgain = grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
	Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}})

// runGRPC watches as a gRPC client: a stream at a time, resumed by after_seq, until one ends with OK
// and brought nothing.
func (c *viewer) runGRPC(ctx context.Context) error {
	file, err := agentProto()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(c.proxy.ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		soonAgain)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+edgeToken)
	for last, streams := schema.Seq(0), 1; ; streams++ {
		n, err := c.stream(ctx, conn, file, &last)
		switch {
		case err == nil && n == 0:
			c.stats = fmt.Sprintf("%d streams", streams)
			return nil
		case err == nil, status.Code(err) == codes.Unavailable, status.Code(err) == codes.Internal:
			// Internal is what grpc-go calls a connection that broke within a message.
		default:
			return fmt.Errorf("behind %d: %w", last, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// stream reads one stream. A nil error is its status OK.
func (c *viewer) stream(ctx context.Context, conn *grpc.ClientConn, file protoreflect.FileDescriptor,
	last *schema.Seq) (n int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/agent.v1.AgentRun/Stream",
		grpc.WaitForReady(true))
	if err != nil {
		return 0, err
	}
	req := dynamicpb.NewMessage(file.Messages().ByName("StreamRequest"))
	set := func(name string, v any) {
		req.Set(req.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
	}
	set("run_id", clientsRun)
	set("after_seq", int64(*last))
	set("detail", protoreflect.EnumNumber(1))
	if err := errors.Join(s.SendMsg(req), s.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	for ; ; n++ {
		m := dynamicpb.NewMessage(file.Messages().ByName("Event"))
		if err := s.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return n, nil
			}
			return n, err
		}
		e := eventOf(m)
		*last = e.Seq
		c.mu.Lock()
		c.got = append(c.got, received{Data: string(e.AppendLine(nil))})
		c.mu.Unlock()
	}
}

// agentProto reads the compiled contract.
func agentProto() (protoreflect.FileDescriptor, error) {
	b, err := os.ReadFile("../../protocols/native/agent.binpb")
	if err != nil {
		return nil, err
	}
	p := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(b, p); err != nil {
		return nil, err
	}
	return protodesc.NewFile(p.GetFile()[0], nil)
}

// eventOf makes the envelope out of the message, field by field: both hold the same.
func eventOf(m *dynamicpb.Message) schema.Event {
	get := func(name string) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
	}
	e := schema.Event{
		ID: get("id").String(), TS: get("ts").String(), Type: get("type").String(), RunID: get("run_id").String(),
		ChildID: get("child_id").String(), Seq: schema.Seq(get("seq").Int()), FirstSeq: schema.Seq(get("first_seq").Int()),
		TurnID: get("turn_id").String(), Cause: get("cause").String(), Actor: get("actor").String(),
		Payload: json.RawMessage(get("payload").String()),
	}
	path := get("path").List()
	for i := range path.Len() {
		e.Path = append(e.Path, path.Get(i).String())
	}
	if extra := get("extra").String(); len(extra) > 2 {
		e.Extra = json.RawMessage(extra[1 : len(extra)-1])
	}
	return e
}
