package live

import (
	"errors"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// TestReplaysAreBounded: what is kept of replays is at most so much, and nothing when nobody reads, whatever was made,
// dropped and failed meanwhile.
func TestReplaysAreBounded(t *testing.T) {
	all := &views{}
	rs, of := &replays{all: all}, projectionKey{form: "a"}
	if rs.enter(of); true {
		if c, mine := rs.at(of, 0); c != nil || mine {
			t.Fatal("a reader that is alone shares")
		}
	}
	rs.enter(of)
	fail := errors.New("the log is gone")
	var held []*chunk
	for after := range schema.Seq(200) {
		c, mine := rs.at(of, after)
		if other, again := rs.at(of, after); !mine || again || other != c {
			t.Fatalf("behind %d: made by %v and %v", after, mine, again)
		}
		switch after % 3 {
		case 0:
			c.ready(fail)
			if next, mine := rs.at(of, after); next == c || !mine {
				t.Fatalf("behind %d: what failed is kept", after)
			} else {
				held = append(held, next)
			}
		default:
			c.list = append(c.list, dialect.Frame{Data: make([]byte, replayBytes/20)})
			c.ready(nil)
		}
		if rs.bytes > replayBytes || all.replayed.Load() != int64(rs.bytes) {
			t.Fatalf("%d bytes are kept, %d counted", rs.bytes, all.replayed.Load())
		}
	}
	rs.leave(of)
	if c, _ := rs.at(of, 199); c == nil {
		t.Error("the last reader has nothing of what the others made")
	}
	rs.leave(of)
	for _, c := range held {
		c.ready(nil)
	}
	if n := all.replayed.Load(); n != 0 || len(rs.chunks)+len(rs.order) > 0 {
		t.Errorf("%d bytes in %d chunks are kept for nobody", n, len(rs.chunks))
	}
}
