package live_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// streamOf returns a stream of a protocol, to be changed.
func streamOf(p *protocol.Protocol, name string) *protocol.Stream {
	return &p.Streams[slices.IndexFunc(p.Streams, func(s protocol.Stream) bool { return s.Name == name })]
}

// sampleStreams changes the sample.
func sampleStreams(change func(p *protocol.Protocol)) func(*edge.Config) {
	return func(c *edge.Config) {
		edgetest.WithSample(c)
		change(&c.Protocols[1])
	}
}

// TestKeepAliveOfAProtocol: silence may last as long as the stream's protocol says; another protocol's streams of the
// same run keep their own time.
func TestKeepAliveOfAProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		h := edgetest.NewHouseOn(t, ln, ln.Client(),
			sampleStreams(func(p *protocol.Protocol) { p.KeepAlive = 20 * time.Second }))
		h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
		begun := time.Now()
		at := func(r *edgetest.EventReader, second int, want string) {
			t.Helper()
			got, err := r.Next()
			if err != nil || !strings.Contains(got, want) || time.Since(begun) != time.Duration(second)*time.Second {
				t.Fatalf("after %v: %q, %v, want %q after %d s", time.Since(begun), got, err, want, second)
			}
		}
		near, look, native := h.Watch(h.Client, "/sample/run/near"), h.Feed(t, "POST", "/sample/look",
			`{"run":"run"}`), h.Watch(h.Client, watched)
		look.Want(`hello {"after":0}`, `sample {"seq":1,"type":"run.lifecycle","child":""}`)
		readThrough(look, ": up to 1")
		readThrough(look, "")
		at(near, 0, "hello")
		at(near, 0, `"seq":1`)
		at(native, 0, "id: 1\n")
		at(native, 15, ": keepalive")
		at(near, 20, ": keepalive")
		if line, err := look.Lines.ReadString('\n'); err != nil || line != ": keepalive\n" ||
			time.Since(begun) != 20*time.Second {
			t.Fatalf("%q %v after %v", line, err, time.Since(begun))
		}
		time.Sleep(3 * time.Second)
		h.Must("run", schema.TypeProgress, `{"done":1}`)
		at(near, 23, `"seq":2`)
		at(near, 43, ": keepalive")
		for _, r := range []*edgetest.EventReader{near, native} {
			r.Resp.Body.Close()
		}
	})
}
