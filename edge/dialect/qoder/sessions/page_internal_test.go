package sessions

import (
	"errors"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// TestTail holds how much is kept of a stretch while it is read: neither more frames nor more bytes than a page takes,
// but for one frame.
func TestTail(t *testing.T) {
	kept := tail{most: 5, room: 1000}
	for i := range 100 {
		kept.push(spot{seq: 1, n: i}, dialect.Frame{Data: make([]byte, 400)})
		if len(kept.list) > 3 || kept.bytes > 1000+400 {
			t.Fatalf("%d frames of %d bytes", len(kept.list), kept.bytes)
		}
	}
	kept.push(spot{seq: 2}, dialect.Frame{Data: make([]byte, 5000)})
	if len(kept.list) != 1 || kept.list[0].at.seq != 2 || !kept.cut {
		t.Errorf("%d frames, the first at %v", len(kept.list), kept.list[0].at)
	}
}

// FuzzToken reads anything as a page: what is taken is what was made.
func FuzzToken(f *testing.F) {
	made := window{scope: "events", desc: true, back: true}
	f.Add(made.token("12.3"))
	f.Add("MWFmMS4wLjEyMzQ")
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		w := window{scope: "events", page: token}
		if err := w.open(""); err != nil {
			if !errors.Is(err, schema.ErrBadCursor) {
				t.Fatal(err)
			}
			return
		}
		if again := w.token(w.page); again != token {
			t.Errorf("%q is %q", token, again)
		}
		if s, err := parseSpot(w.page); err == nil && s.String() != w.page {
			t.Errorf("%q is %v", w.page, s)
		}
	})
}
