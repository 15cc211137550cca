package dialect

import (
	"fmt"
	"testing"
)

// TestFramesKeepTheirTexts holds that texts made up early survive the arena's growth.
func TestFramesKeepTheirTexts(t *testing.T) {
	var f Frames
	for round := range 2 {
		for i := range 1000 {
			f.Add(Frame{Token: f.Number(int64(i)), Event: f.Text([]byte("e"), []byte(fmt.Sprint(i)))})
		}
		for i, fr := range f.List {
			if string(fr.Token) != fmt.Sprint(i) || string(fr.Event) != "e"+fmt.Sprint(i) {
				t.Fatalf("round %d: frame %d is %q %q", round, i, fr.Token, fr.Event)
			}
		}
		// A projector that appends to a text must not write over its neighbour.
		_ = append(f.List[0].Token, "xxxx"...)
		if string(f.List[0].Event) != "e0" {
			t.Fatalf("texts share their ends: %q", f.List[0].Event)
		}
		list := f.List
		f.Reset()
		if len(f.List) != 0 || list[0].Token != nil {
			t.Fatal("reset keeps frames alive")
		}
	}
}

func TestModes(t *testing.T) {
	for m, want := range map[Mode]bool{ModeA: true, ModeB: true, ModeC: false, ModeD: false} {
		if m.IsFinite() != want {
			t.Errorf("mode %c", m)
		}
	}
}
