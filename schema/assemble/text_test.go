package assemble

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentstream/schema/schematest"
)

// parting keeps so little of texts that they come in many parts.
var parting = Limits{Message: 32 << 10, All: 1 << 20, Text: 12, Texts: 30}

// TestParts: the parts of a block's text are together what was streamed of it, no more is kept than the limits allow,
// and nothing else changes for those who ask for texts.
func TestParts(t *testing.T) {
	t.Parallel()
	var parts, shed int
	check := func(s schematest.Scenario) {
		a, without, said := New(parting), New(keeping), map[string][]byte{}
		for _, r := range records(t, s) {
			steps := slices.Clone(next(t, a, r))
			for i := range steps {
				s := &steps[i]
				if s.Block == nil {
					continue
				}
				key := fmt.Sprint(s.Lane.Child, s.Message.Start, s.Block.Place)
				switch s.Kind {
				case BlockText:
					if s.Low != 0 {
						said[key] = fmt.Appendf(said[key], `\u%x`, s.Low)
					}
					said[key] = append(said[key], s.Text...)
				case BlockPart:
					if parts++; string(r.Child) != s.Lane.Child {
						shed++
					}
					fallthrough
				case BlockClose:
					if !bytes.Equal(s.Text, said[key]) {
						t.Fatalf("seq %d: %s of %s is %q, streamed %q", r.Seq, names[s.Kind], key, s.Text, said[key])
					}
					delete(said, key)
				}
				if s.Kind == BlockClose {
					s.Text = nil
				}
			}
			steps = slices.DeleteFunc(steps, func(s Transition) bool { return s.Kind == BlockPart })
			if got, want := written(steps), written(next(t, without, r)); got != want {
				t.Fatalf("seq %d means with texts\n%s without\n%s", r.Seq, got, want)
			}
			if n := textsOf(t, a); n != a.texts || n > parting.Texts {
				t.Fatalf("seq %d: %d bytes are kept, %d counted", r.Seq, n, a.texts)
			}
		}
	}
	for _, s := range schematest.All() {
		check(s)
	}
	for seed := range uint64(streams / 4) {
		check(stream(seed))
	}
	if parts < streams/4 || shed == 0 {
		t.Errorf("only %d parts, %d of other lanes", parts, shed)
	}
}

// textsOf counts what is kept of texts.
func textsOf(t *testing.T, a *Run) (n int) {
	for _, l := range a.lanes {
		if l.Message == nil {
			continue
		}
		for _, b := range l.Message.Blocks {
			if n += len(b.Part()); len(b.Part()) > a.limits.Text || b.state == blockClosed && b.Part() != nil {
				t.Fatalf("%d bytes of a block in state %d are kept", len(b.Part()), b.state)
			}
		}
	}
	return n
}

// TestPartsOf: what is too long ends as a part: the longest text first, when it is all together.
func TestPartsOf(t *testing.T) {
	a, got := New(Limits{Text: 6, Texts: 12}), ""
	for _, r := range records(t, scenario(`
		text.delta {"text":"abcd"}
		text.delta {"text":"ef"}
		text.delta {"text":"g"}
		text.delta {"text":"oversized"}
		kid:text.delta {"text":"12345"}
		other:reasoning.delta {"text":"123456"}
		text.delta {"text":"hi"}
		run.lifecycle {"state":"done"}`)) {
		for line := range strings.Lines(written(next(t, a, r))) {
			if strings.HasPrefix(line, "text") || strings.HasPrefix(line, "part") || strings.HasPrefix(line, "block.close") {
				got += line
			}
		}
	}
	want := `text 0 "abcd"
text 0 "ef"
part 0 "abcdef"
text 0 "g"
part 0 "g"
text 0 "oversized"
part 0 "oversized"
text @kid 0 "12345"
text @other 0 "123456"
part @other 0 "123456"
text 0 "hi"
block.close 0 "hi"
block.close @kid 0 "12345"
block.close @other 0
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

// TestCopiesShareTexts: a copy costs nothing of a text, whatever its length.
func TestCopiesShareTexts(t *testing.T) {
	a := New(Limits{Text: 1 << 20, Texts: 4 << 20})
	list := records(t, scenario(`message.start {"message_id":"m"}`+"\n"+`text.delta {"text":"`+
		strings.Repeat("x", 100<<10)+`"}`))
	next(t, a, list[0])
	for range 5 {
		next(t, a, list[1])
	}
	c := a.Clone()
	next(t, c, records(t, scenario(`turn.start {"turn_id":"t"}`+"\n"+`kid:text.delta {"text":"y"}`))[1])
	of := func(a *Run) []byte { return a.Lane("").Message.Newest().Part() }
	if &of(a)[0] != &of(c)[0] || len(of(a)) != 500<<10 {
		t.Error("the copy has a text of its own")
	}
	want := string(of(c)) + "1"
	next(t, a, records(t, scenario(`text.delta {"text":"2"}`))[0])
	next(t, c, records(t, scenario(`text.delta {"text":"1"}`))[0])
	if string(of(c)) != want || !strings.HasSuffix(string(of(a)), "x2") {
		t.Error("copies disturb each other")
	}
}

// TestTextCosts: keeping a text costs no allocation for a piece, but those of a text that doubles.
func TestTextCosts(t *testing.T) {
	list := records(t, scenario(`message.start {"message_id":"m","role":"assistant"}
		text.delta {"text":" about twenty bytes","index":0}`))
	a := New(Limits{Text: 384 << 10, Texts: 4 << 20})
	for range 2 {
		for _, r := range list {
			next(t, a, r)
		}
	}
	if n := testing.AllocsPerRun(20_000, func() { _, _ = a.Next(list[1]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDeltaText(b *testing.B) {
	_, r := delta(b)
	a := New(Limits{Text: 384 << 10, Texts: 4 << 20})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = a.Next(r)
	}
}

// TestPartsOfCopies: copies that keep texts go on like the original.
func TestPartsOfCopies(t *testing.T) {
	t.Parallel()
	for seed := range uint64(streams / 10) {
		copiesGoOn(t, seed, parting)
	}
}
