package timeline

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"agentstream/cmd/agentstream/internal/terminal"
)

// style is a set of SGR parameters (ECMA-48 §8.3.117); "" is the terminal's own.
type style string

const (
	styleNone    style = ""
	styleDim     style = "2"
	styleThought style = "2;3"
	styleBold    style = "1"
	styleError   style = "31"
	styleWarn    style = "33"
	styleGood    style = "32"
	styleTool    style = "36"
	styleRule    style = "2;34"
)

// childStyles tell children apart, in the order of their coming.
var childStyles = []style{"35", "34", "36", "33", "32", "95", "94", "96"}

const (
	clockColumns = 10 // right-aligned offset and a space
	glyphColumns = 2
	minText      = 16 // a narrower text column is not worth wrapping
)

// terminalWriter writes paragraphs: a gutter with time, lane and glyph, then text that may come in pieces and
// is wrapped at words under itself. A word is shown as it comes and taken back when it turns out
// not to fit. One goroutine at a time.
type terminalWriter struct {
	w      *bufio.Writer
	screen terminal.Screen

	open   bool   // a paragraph is open
	hang   string // gutter of continuation lines, as printed
	blank  string // gutter of empty lines
	style  style  // of the open paragraph's text
	width  int    // columns; 0 never wraps
	start  int    // column of the text
	col    int
	word   []byte // the printed part of the word at the end of the line
	wordAt int    // its column
	cr     bool   // the last rune was a CR: CRLF is one line break, also across pieces
	breaks int    // line breaks that wait for something to follow them
}

func newPen(w io.Writer, s terminal.Screen) *terminalWriter {
	return &terminalWriter{w: bufio.NewWriter(w), screen: s}
}

// sgr switches a style on.
func (p *terminalWriter) sgr(s style) string {
	if !p.screen.Color || s == "" {
		return ""
	}
	return "\x1b[" + string(s) + "m"
}

func (p *terminalWriter) off(s style) string {
	if !p.screen.Color || s == "" {
		return ""
	}
	return "\x1b[0m"
}

// paint puts text that is safe already into a style.
func (p *terminalWriter) paint(s style, text string) string { return p.sgr(s) + text + p.off(s) }

// gutter is what stands left of a paragraph.
type gutter struct {
	clock string
	depth int    // of the lane
	lane  style  // of the lane's bar
	label string // of the lane, once per paragraph
	glyph string // one column
	tint  style  // of the glyph
}

// openParagraph opens a paragraph; an open one is ended. The text's style holds until closeParagraph.
func (p *terminalWriter) openParagraph(g gutter, text style) {
	p.closeParagraph()
	p.width = 0
	if p.screen.Width != nil {
		p.width = p.screen.Width()
	}
	margin, bar := strings.Repeat(" ", clockColumns), ""
	p.blank = ""
	if g.depth > 0 {
		bar = strings.Repeat("  ", g.depth-1) + p.paint(g.lane, "│")
		p.blank = margin + bar
		bar += " "
	}
	p.start = clockColumns + 2*g.depth + glyphColumns
	glyph := g.glyph
	if glyph == "" {
		glyph = " "
	}
	fmt.Fprintf(p.w, "%s %s%s ", p.paint(styleDim, fmt.Sprintf("%*s", clockColumns-1, g.clock)), bar,
		p.paint(g.tint, glyph))
	p.hang = margin + bar + strings.Repeat(" ", glyphColumns)
	p.col, p.open, p.style, p.breaks = p.start, true, styleNone, 0
	if p.width > 0 && p.width-p.start < minText {
		p.width = 0 // let the terminal wrap
	}
	p.noWord()
	if g.label != "" {
		p.inStyle(g.lane, g.label+" ")
	}
	p.style = text
	p.w.WriteString(p.sgr(text))
}

// closeParagraph closes the paragraph.
func (p *terminalWriter) closeParagraph() {
	if !p.open {
		return
	}
	p.w.WriteString(p.off(p.style))
	p.w.WriteByte('\n')
	p.open, p.cr = false, false
}

// inStyle writes a piece in a style of its own within the paragraph.
func (p *terminalWriter) inStyle(s style, text string) {
	if text == "" {
		return
	}
	was := p.style
	p.w.WriteString(p.off(was) + p.sgr(s))
	p.style = s
	p.noWord()
	p.text(text)
	p.noWord()
	p.style = was
	p.w.WriteString(p.off(s) + p.sgr(was))
}

// pending writes the line breaks that something follows now: a text's last ones only end the
// paragraph, which has an end anyway.
func (p *terminalWriter) pending() {
	for ; p.breaks > 0; p.breaks-- {
		if p.breaks == 1 {
			p.newline()
			continue
		}
		p.w.WriteString(p.off(p.style) + "\n" + p.blank + p.sgr(p.style))
	}
}

func (p *terminalWriter) noWord() { p.word, p.wordAt = p.word[:0], p.col }

// text writes the next piece of the paragraph, made safe on the way.
func (p *terminalWriter) text(s string) {
	for _, r := range s {
		wasCR := p.cr
		p.cr = r == '\r'
		switch {
		case p.cr: // decided with the next rune
		case r == '\n':
			p.breaks++
		default:
			p.pending()
			if wasCR {
				p.literal(terminal.Picture('\r'))
			}
			p.rune(r)
		}
	}
}

func (p *terminalWriter) rune(r rune) {
	switch {
	case r == '\t':
		p.literal("    ")
	case terminal.Hostile(r):
		p.literal(terminal.Picture(r))
	case r == ' ':
		if p.width > 0 && p.col >= p.width {
			p.newline()
			return
		}
		p.w.WriteByte(' ')
		p.col++
		p.noWord()
	default:
		p.visible(r)
	}
}

func (p *terminalWriter) literal(s string) {
	for _, r := range s {
		if r == ' ' {
			p.rune(r)
		} else {
			p.visible(r)
		}
	}
}

// visible writes one rune, taking the word it belongs to onto the next line when it does not fit.
func (p *terminalWriter) visible(r rune) {
	n := terminal.RuneColumns(r)
	if n == 2 { // ideographs may be parted anywhere
		p.noWord()
	}
	if p.width > 0 && p.col+n > p.width {
		word := string(p.word)
		if len(word) > 0 && p.wordAt > p.start && p.screen.Terminal {
			fmt.Fprintf(p.w, "\x1b[%dG\x1b[K", p.wordAt+1)
			p.newline()
			p.w.WriteString(word)
			p.word, p.col = append(p.word, word...), p.start+terminal.Columns(word)
		} else {
			p.newline()
		}
	}
	p.w.WriteRune(r)
	p.word = utf8.AppendRune(p.word, r)
	p.col += n
}

func (p *terminalWriter) newline() {
	p.w.WriteString(p.off(p.style) + "\n" + p.hang + p.sgr(p.style))
	p.col = p.start
	p.noWord()
}

// rest is how many columns are left in the line, with a bound for outputs that do not wrap.
func (p *terminalWriter) rest() int {
	if p.width == 0 {
		return 40
	}
	return max(0, p.width-p.col)
}
