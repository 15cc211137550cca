package protocol

import "testing"

// TestTail holds how much is kept of a range while it is read: neither more frames nor more bytes than a page takes,
// but for one frame.
func TestTail(t *testing.T) {
	kept := Tail[Offset]{Most: 5, Room: 1000}
	for i := range 100 {
		kept.Push(Offset{Seq: 1, N: i}, "", make([]byte, 400))
		if len(kept.List) > 3 || kept.bytes > 1000+400 {
			t.Fatalf("%d frames of %d bytes", len(kept.List), kept.bytes)
		}
	}
	kept.Push(Offset{Seq: 2}, "", make([]byte, 5000))
	if len(kept.List) != 1 || kept.List[0].At.Seq != 2 || !kept.Cut {
		t.Errorf("%d frames, the first at %v", len(kept.List), kept.List[0].At)
	}
}
