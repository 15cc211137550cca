package plot

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// Bar is one value of [Bars], at least zero. Note is written after the value.
type Bar struct {
	Label string
	Value float64
	Note  string
}

// Bars is one horizontal bar per label, all to one scale that begins at zero.
type Bars struct {
	Title string
	// Unit is written after each value.
	Unit string
	Bars []Bar
}

const barHeight, barGap = 20, 10

// SVG writes the bars as one document. It returns an error that wraps [ErrNothing] or [ErrValue] for
// bars that cannot be drawn, and then writes nothing; else what w returned.
func (b Bars) SVG(w io.Writer) error {
	longest, label, words, err := b.measure()
	if err != nil {
		return err
	}
	// A character of the font is about 7 pixels wide. Neither names nor values may take the bars' room.
	from := left/2 + float64(min(label*7+12, 300))
	room := width - right - from - float64(min(words*7+12, 260))
	var p pen
	p.open(plotTop+len(b.Bars)*(barHeight+barGap)+12, b.Title)
	for i, bar := range b.Bars {
		y := float64(plotTop + i*(barHeight+barGap))
		p.text(from-8, y+15, "ink", "end", bar.Label)
		length := bar.Value / longest * room
		fmt.Fprintf(&p, `<rect x="%s" y="%s" width="%s" height="%d" rx="2" fill="%s"/>`+"\n",
			px(from), px(y), px(length), barHeight, palette[0])
		p.text(from+length+8, y+15, "dim", "start", b.words(bar))
	}
	p.line("axis", from, plotTop-6, from, float64(plotTop+len(b.Bars)*(barHeight+barGap)))
	return p.close(w)
}

// measure returns the largest value (1 when all are zero) and the longest texts, in characters.
func (b Bars) measure() (longest float64, label, words int, err error) {
	if len(b.Bars) == 0 {
		return 0, 0, 0, fmt.Errorf("%w: %q has no bars", ErrNothing, b.Title)
	}
	for _, bar := range b.Bars {
		where := fmt.Sprintf("bar %q", bar.Label)
		if err := check(bar.Value, false, where); err != nil {
			return 0, 0, 0, err
		}
		if bar.Value < 0 {
			return 0, 0, 0, fmt.Errorf("%w: %s: %v is below zero", ErrValue, where, bar.Value)
		}
		longest = max(longest, bar.Value)
		label = max(label, utf8.RuneCountInString(bar.Label))
		words = max(words, utf8.RuneCountInString(b.words(bar)))
	}
	if longest == 0 {
		longest = 1
	}
	return longest, label, words, nil
}

func (b Bars) words(bar Bar) string {
	s := number(bar.Value)
	if b.Unit != "" {
		s += " " + b.Unit
	}
	if bar.Note != "" {
		s += "  " + bar.Note
	}
	return s
}
