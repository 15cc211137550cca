package live_test

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// TestStreamOfNoRun: a stream that is no run's begins at once, has the headers of its protocol, ends as its handler
// says, and is told when the node goes away before it is ended.
func TestStreamOfNoRun(t *testing.T) {
	serve := func(c *protocol.Call, _ dialect.Input, to protocol.Sending) error {
		body, err := c.Message()
		var m wrapperspb.StringValue
		if err = errors.Join(err, proto.Unmarshal(body, &m)); err != nil {
			return err
		}
		asked := m.GetValue()
		text := func(s string) []byte { b, _ := proto.Marshal(wrapperspb.String(s)); return b }
		if asked == "refuse" {
			return dialect.Refuse(dialect.ErrBadRequest, "not that")
		}
		if err := to.Send(text("one")); err != nil || asked == "once" {
			return err
		}
		<-to.Closing
		return errors.Join(to.Send(text("bye")), ends.ErrDraining)
	}
	h := edgetest.NewHouse(t, sampleStreams(func(p *protocol.Protocol) {
		p.Header = map[string][]string{"Sample-Version": {"1"}}
		streamOf(p, "watch").Serve = serve
		p.LastWords = nil
	}))
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	open := func(question string) func() (string, error) {
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/sample.v1.Sample/Watch")
		if err == nil {
			err = errors.Join(s.SendMsg(wrapperspb.String(question)), s.CloseSend())
		}
		if err != nil {
			t.Fatal(err)
		}
		if head, err := s.Header(); err != nil || len(head.Get("sample-version")) != 1 {
			t.Errorf("%s: %v, %v", question, head, err)
		}
		return func() (string, error) {
			var m wrapperspb.StringValue
			err := s.RecvMsg(&m)
			return m.GetValue(), err
		}
	}
	if _, err := open("refuse")(); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	once := open("once")
	if m, err := once(); m != "one" || err != nil {
		t.Error(m, err)
	}
	if _, err := once(); err != io.EOF { // grpc returns it as it is
		t.Error(err)
	}
	long := open("long")
	if m, err := long(); m != "one" || err != nil {
		t.Error(m, err)
	}
	go h.Stop()
	if m, err := long(); m != "bye" || err != nil {
		t.Error(m, err)
	}
	if _, err := long(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

// TestAdmit: what a protocol asks before a stream is opened is refused like a route, and may move where the stream
// begins.
func TestAdmit(t *testing.T) {
	h := edgetest.NewHouse(t, sampleStreams(func(p *protocol.Protocol) {
		streamOf(p, "watch").Admit = func(_ *protocol.Call, req *dialect.Request) error {
			if req.Run == "closed" {
				return dialect.Refuse(dialect.ErrNotFound, "not for you")
			}
			req.Newest = true
			return nil
		}
	}))
	for _, run := range []string{"closed", "open"} {
		h.Must(run, schema.TypeTextDelta, `{"text":"abc"}`)
	}
	if _, err := watchRPC(h, t, `{"run":"closed"}`)(); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if m, err := watchRPC(h, t, `{"run":"open"}`)(); err != nil || m != `{"after":1,"sum":14}` {
		t.Error(m, err)
	}
}
