package rest_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// receipts reads messages until so many lines are answered, and returns them in the order of their lines.
func receipts(k *edgetest.Tap, lines int) []string {
	k.T.Helper()
	var list []receipt
	for done := 0; done < lines; {
		text, err := k.Event()
		if err != nil {
			k.T.Fatalf("%v behind %v", err, list)
		}
		for _, r := range receiptsOf(k.T, text) {
			if list = append(list, r); r.Error != nil {
				done++
			} else {
				done += int(r.Last-r.First) + 1
			}
		}
	}
	return texts(list)
}

// A WebSocket takes one line in a message, or several, and answers as they become durable.
func TestPublishSocket(t *testing.T) {
	h := edgetest.NewHouse(t)
	k := h.MustTap("ws", edgetest.PublishPath, 0)
	frame := func(s string) []byte { return edgetest.ClientFrame(0x81, s) }
	for _, tt := range []struct {
		send  []byte
		lines int
		want  string
	}{
		{frame(edgetest.LineOf("a", "")), 1, "1 a: 1-1"},
		{frame(edgetest.LineOf("a", "") + "\n" + edgetest.LineOf("b", "") + "\n" + edgetest.LineOf("a", "") + "\n"), 3,
			"3 b: 1-1; 4 a: 2-3"},
		{slices.Concat(frame(edgetest.LineOf("a", `,"key":"k"`)), frame(edgetest.LineOf("a", `,"key":"k"`))), 2,
			"5 a: 4-4; 6 a: 4-4 again"},
		{slices.Concat(frame(edgetest.LineOf("a", `,"x":"`+strings.Repeat("x", 2<<20)+`"`)),
			frame(edgetest.LineOf("a", ""))), 2, "7 : KAI-STREAM-PROTO-0001; 8 a: 5-5"},
		{frame(edgetest.LineOf("a", `,"x":"`+strings.Repeat("x", 600<<10)+`"`)), 1, "9 : KAI-STREAM-PROTO-0001"},
		{frame(`{"type":"progress"}`), 1, "10 : KAI-STREAM-PROTO-0001"},
		{frame("\n\r\n"), 0, ""},
		{frame(edgetest.LineOf("a", "")), 1, "13 a: 6-6"},
	} {
		k.Send(tt.send)
		if got := strings.Join(receipts(k, tt.lines), "; "); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		frame []byte
		code  int
		told  string
	}{
		"text":   {frame("hello\nhello"), 1008, "2 : KAI-STREAM-PROTO-0001"},
		"binary": {edgetest.ClientFrame(0x82, "\x00\x01"), 1003, ""},
		"UTF-8":  {frame("\xff"), 1007, ""},
	} {
		k := h.MustTap("ws", edgetest.PublishPath, 0)
		k.Send(slices.Concat(frame(edgetest.LineOf("g", "")), tt.frame, frame(edgetest.LineOf("g", ""))))
		var got []string
		for {
			text, err := k.Event()
			if err != nil {
				if !errors.Is(err, edgetest.ErrClosed) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			got = append(got, texts(receiptsOf(t, text))...)
		}
		if slices.Sort(got); k.Code != tt.code || len(got) == 0 || !strings.HasPrefix(got[0], "1 g: ") ||
			tt.told != strings.Join(got[1:], "; ") {
			t.Errorf("%s: %v, closed with %d %s", name, got, k.Code, k.Reason)
		}
	}
	if n := len(storedEvents(h, "g")); n != 3 {
		t.Errorf("%d lines are stored, 3 were sent before garbage", n)
	}
}

// request is an encoded agent.v1.PublishRequest.
func publishRequest(run, typ, payload, key string) []byte {
	var e, b []byte
	for n, v := range map[protowire.Number]string{3: typ, 4: run, 13: payload} {
		e = protowire.AppendString(protowire.AppendTag(e, n, protowire.BytesType), v)
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), e)
	return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), key)
}

// A bidirectional call does the same.
func TestPublishCall(t *testing.T) {
	h := edgetest.NewHouse(t)
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := func() (send func(b []byte), next func() (string, error), done func() error) {
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/agent.v1.AgentIngest/Publish", grpc.ForceCodec(edgetest.RawCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Header(); err != nil {
			t.Fatal(err)
		}
		send = func(b []byte) {
			if err := s.SendMsg(&b); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		next = func() (string, error) {
			var b []byte
			if err := s.RecvMsg(&b); err != nil {
				return "", err
			}
			nums, texts := edgetest.MessageFields(t, b)
			r := receipt{Line: int(nums[1]), Run: texts[2], First: schema.Seq(nums[3]), Last: schema.Seq(nums[4]),
				Root: texts[5], Replayed: nums[6] == 1}
			if no := texts[7]; no != "" {
				_, said := edgetest.MessageFields(t, []byte(no))
				r.Error = &edgetest.Problem{Code: said[1], Message: said[2]}
			}
			return r.String(), nil
		}
		return send, next, s.CloseSend
	}
	send, next, done := open()
	for _, tt := range []struct {
		send []byte
		want string
	}{
		{publishRequest("a", "text.delta", `{"text":"a"}`, ""), "1 a: 1-1"},
		{publishRequest("b", "text.delta", "{\n\"text\":\"a\"}", ""), "2 b: 1-1"},
		{publishRequest("a", "text.deltas", `{"text":"a"}`, ""), "3 a: KAI-STREAM-PROTO-0002"},
		{publishRequest("a.>", "text.delta", `{"text":"a"}`, ""), "4 : BAD-ID"},
		{publishRequest("a", "text.delta", `{"text":"a"}`, "k"), "5 a: 2-2"},
		{publishRequest("a", "text.delta", `{"text":"a"}`, "k"), "6 a: 2-2 again"},
		{[]byte("\xff\xff"), "7 : BAD-REQUEST"},
	} {
		send(tt.send)
		if got, err := next(); err != nil || got != tt.want {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
	}
	send(publishRequest("a", "text.delta", `{"text":"a"}`, ""))
	if err := done(); err != nil {
		t.Error(err)
	}
	if got, err := next(); err != nil || got != "8 a: 3-3" {
		t.Error(got, err)
	}
	if _, err := next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	send, next, _ = open()
	send(publishRequest("a", "text.delta", `nothing`, "")) // no JSON object becomes of it
	if got, err := next(); err != nil || got != "1 : KAI-STREAM-PROTO-0001" {
		t.Error(got, err)
	}
	if _, err := next(); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	send, next, _ = open()
	send(publishRequest("a", "text.delta", `{"text":"a"}`, ""))
	if got, err := next(); err != nil || got != "1 a: 4-4" {
		t.Error(got, err)
	}
	go func() { _ = h.Stop() }()
	if _, err := next(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	_ = h.Stop()
}
