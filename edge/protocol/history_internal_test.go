package protocol

import (
	"testing"

	"agentstream/edge/dialect"
)

// TestTail holds how much is kept of a stretch while it is read: neither more frames nor more bytes than a page takes,
// but for one frame.
func TestTail(t *testing.T) {
	kept := tail{most: 5, room: 1000}
	for i := range 100 {
		kept.push(Spot{Seq: 1, N: i}, dialect.Frame{Data: make([]byte, 400)})
		if len(kept.list) > 3 || kept.bytes > 1000+400 {
			t.Fatalf("%d frames of %d bytes", len(kept.list), kept.bytes)
		}
	}
	kept.push(Spot{Seq: 2}, dialect.Frame{Data: make([]byte, 5000)})
	if len(kept.list) != 1 || kept.list[0].at.Seq != 2 || !kept.cut {
		t.Errorf("%d frames, the first at %v", len(kept.list), kept.list[0].at)
	}
}
