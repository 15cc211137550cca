package edgetest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lxzan/gws"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Socket is a WebSocket client that remembers what it got.
type Socket struct {
	gws.BuiltinEventHandler
	mu     sync.Mutex
	lines  []string
	closed chan struct{}
	err    error
	Conn   *gws.Conn
}

// OnMessage keeps a message.
func (s *Socket) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	if m.Opcode != gws.OpcodeText {
		s.lines = append(s.lines, "not text")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(m.Bytes()))
}

// OnPing answers.
func (s *Socket) OnPing(c *gws.Conn, payload []byte) { _ = c.WritePong(payload) }

// OnClose notes why the connection ended.
func (s *Socket) OnClose(_ *gws.Conn, err error) {
	s.err = err
	close(s.closed)
}

// Count returns how many messages have come.
func (s *Socket) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

// Dial opens a WebSocket; headers are name, value, …
func (h *House) Dial(path string, headers ...string) (*Socket, *http.Response, error) {
	s := &Socket{closed: make(chan struct{})}
	head := http.Header{"Sec-Websocket-Protocol": {"koder-agent-stream-v1"}}
	for i := 0; i+1 < len(headers); i += 2 {
		head.Set(headers[i], headers[i+1])
	}
	conn, resp, err := gws.NewClient(s, &gws.ClientOption{Addr: "ws://" + h.Addr + path, RequestHeader: head,
		ReadMaxPayloadSize: 8 << 20})
	if err != nil {
		return nil, resp, err
	}
	s.Conn = conn
	go conn.ReadLoop()
	return s, resp, nil
}

// Wait returns the lines up to the close, and the close.
func (s *Socket) Wait(t testing.TB) ([]string, *gws.CloseError) {
	t.Helper()
	select {
	case <-s.closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not close")
	}
	var ce *gws.CloseError
	if !errors.As(s.err, &ce) {
		t.Fatalf("closed by %v", s.err)
	}
	if _, words, said := strings.Cut(string(ce.Reason), ": "); said {
		readMessage(t, "WebSocket", words)
	}
	return s.lines, ce
}

// RawCodec hands messages through as bytes.
type RawCodec struct{}

// Marshal returns the bytes.
func (RawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// Unmarshal keeps the bytes.
func (RawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// Name is that of the codec whose place it takes.
func (RawCodec) Name() string { return "proto" }

// MessageFields takes a flat message apart: numbers and texts by field number.
func MessageFields(t testing.TB, b []byte) (nums map[protowire.Number]uint64, texts map[protowire.Number]string) {
	t.Helper()
	nums, texts = map[protowire.Number]uint64{}, map[protowire.Number]string{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		b = b[max(n, 0):]
		switch typ {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			nums[num], b = v, b[max(n, 0):]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			texts[num], b = string(v), b[max(n, 0):]
		default:
			t.Fatalf("field %d has type %d", num, typ)
		}
	}
	return nums, texts
}

// StreamRequest returns a request for the stream of a run over gRPC.
func StreamRequest(run string, after uint64, full bool) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), run)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), after)
	if full {
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1)
	}
	return b
}

// RPC calls agent.v1.AgentRun/Stream and gives the messages and the end.
func RPC(t testing.TB, conn *grpc.ClientConn, request []byte, md ...string) ([][]byte, error) {
	t.Helper()
	return RPCUntil(t, conn, request, make(chan struct{}), md...)
}

// RPCUntil closes begun when the first message is there.
func RPCUntil(t testing.TB, conn *grpc.ClientConn, request []byte, begun chan struct{}, md ...string) ([][]byte,
	error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), md...), 20*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/agent.v1.AgentRun/Stream",
		grpc.ForceCodec(RawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(&request), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	for {
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			if _, words, said := strings.Cut(status.Convert(err).Message(), ": "); said && status.Code(err) != codes.Unknown {
				readMessage(t, "gRPC", words) // after the code
			}
			return got, err
		}
		got = append(got, m)
		if len(got) == 1 {
			close(begun)
		}
	}
}
