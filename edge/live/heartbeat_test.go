package live_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// sampleStreams sets the sample's signs of life.
func sampleStreams(change func(p *protocol.Protocol)) func(*edge.Config) {
	return func(c *edge.Config) {
		edgetest.WithSample(c)
		change(&c.Protocols[1])
	}
}

// TestKeepAliveOfAProtocol: silence may last as long as the stream's protocol says, or the stream; another protocol's
// streams of the same run keep their own time. The sign of life is a frame where the protocol has one.
func TestKeepAliveOfAProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		h := edgetest.NewHouseOn(t, ln, ln.Client(), sampleStreams(func(p *protocol.Protocol) { p.KeepAlive = 20 * time.Second }))
		h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
		begun := time.Now()
		at := func(r *edgetest.EventReader, second int, want string) {
			t.Helper()
			got, err := r.Next()
			if err != nil || !strings.Contains(got, want) || time.Since(begun) != time.Duration(second)*time.Second {
				t.Fatalf("after %v: %q, %v, want %q after %d s", time.Since(begun), got, err, want, second)
			}
		}
		near, look, native := h.Watch(h.Client, "/sample/run/near"), h.Feed(t, "POST", "/sample/look", `{"run":"run"}`), h.Watch(h.Client, watched)
		look.Want(`hello {"after":0}`, `sample {"seq":1,"type":"run.lifecycle","child":""}`)
		readThrough(look, ": up to 1")
		readThrough(look, "")
		at(near, 0, "hello")
		at(near, 0, `"seq":1`)
		at(native, 0, "id: 1\n")
		at(near, 5, "event: beat\ndata: {}\n\n")
		at(near, 10, "event: beat\n")
		at(native, 15, ": keepalive")
		at(near, 15, "event: beat\n")
		if line, err := look.Lines.ReadString('\n'); err != nil || line != ": keepalive\n" || time.Since(begun) != 20*time.Second {
			t.Fatalf("%q %v after %v", line, err, time.Since(begun))
		}
		time.Sleep(3 * time.Second)
		h.Must("run", schema.TypeProgress, `{"done":1}`)
		at(near, 23, "event: beat\n") // that of 20 s, which was not read
		at(near, 23, `"seq":2`)
		at(near, 28, "event: beat\n")
		for _, r := range []*edgetest.EventReader{near, native} {
			r.Resp.Body.Close()
		}
	})
}

// TestHeartbeatOverEveryTransport: streams that are parked, and one over gRPC, which is not, show the protocol's sign of life
// and no other, between their frames, and cursors stay where they are.
func TestHeartbeatOverEveryTransport(t *testing.T) {
	h := edgetest.NewHouse(t, sampleStreams(func(p *protocol.Protocol) {
		p.KeepAlive = 10 * time.Millisecond
		for _, name := range []string{"feed", "feed.ws", "look", "watch"} {
			s := p.Streams[name]
			s.Heartbeat = &dialect.Frame{Event: []byte("beat"), Data: []byte(`{"beat":1}`)}
			p.Streams[name] = s
		}
	}))
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	for _, w := range openWatchers(h, t, "run") {
		w.wants(t, `{"after":0}`, `{"seq":1,"type":"run.lifecycle","child":""}`)
		seq := schema.Seq(1)
		until := func(beats int, last schema.Seq) { // so many heartbeats and this event have come, and each event once
			t.Helper()
			for beats > 0 || seq < last {
				got, err := w.next()
				switch {
				case err == nil && got == `{"beat":1}`:
					beats--
				case err == nil && strings.HasPrefix(got, `{"seq":`+(seq+1).String()+`,`):
					seq++
				default:
					t.Fatalf("%s: %q %v behind %d", w.name, got, err, seq)
				}
			}
		}
		until(3, 1)
		h.Must("run", schema.TypeProgress, `{"done":1}`)
		until(0, h.Last("run"))
		until(3, 0)
	}
	s := h.MustTap("ws", "/sample/run/feed", 0, "Sec-WebSocket-Protocol", "sample")
	for range 20 {
		if _, err := s.Event(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Signs != 0 {
		t.Errorf("%d pings beside the heartbeats", s.Signs)
	}
	if logs := h.Logs.String(); strings.Contains(logs, `"level":"ERROR"`) {
		t.Error(logs)
	}
}

// TestHeartbeatIsNotRead has clients that do not read what heartbeats bring them: they are cut as slow ones are.
func TestHeartbeatIsNotRead(t *testing.T) {
	h := edgetest.NewHouse(t, sampleStreams(func(p *protocol.Protocol) {
		p.KeepAlive = time.Millisecond
		large := dialect.Frame{Data: []byte(`"` + strings.Repeat("x", 32<<10) + `"`)}
		p.Streams["feed.ws"], p.Streams["look"] = protocol.Stream{Heartbeat: &large}, protocol.Stream{Heartbeat: &large}
	}), func(c *edge.Config) { c.WriteTimeout, c.SendBuffer = 200*time.Millisecond, 4<<10 })
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.MustTap("ws", "/sample/run/feed", 4<<10, "Sec-WebSocket-Protocol", "sample")
	edgetest.Eventually(t, "it is cut", func() bool { return strings.Contains(h.Logs.String(), `"reason":"slow client"`) })
	h.Vacant()
}
