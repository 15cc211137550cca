package plot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// ErrNothing reports that there is nothing to draw.
var ErrNothing = errors.New("plot: nothing to draw")

// ErrValue reports that a value has no place on its axis.
var ErrValue = errors.New("plot: value cannot be drawn")

const width, left, right = 760, 76, 24

// palette is of Okabe and Ito ("Color Universal Design", 2008), without the yellow, which is not seen
// on white. It is used in light and dark alike.
var palette = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}

// dashes tell a second round of colours from the first.
var dashes = []string{"", "6 3", "2 3"}

const style = `<style>
.bg{fill:#fff}.ink{fill:#1f2328}.dim{fill:#57606a}.grid{stroke:#d0d7de}.axis{stroke:#57606a}
text{font-family:system-ui,sans-serif;font-size:12px}.title{font-size:15px;font-weight:600}
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}.ink{fill:#e6edf3}.dim{fill:#9198a1}.grid{stroke:#30363d}.axis{stroke:#9198a1}}
</style>
`

// pen collects a document, so that nothing is written of one that cannot be finished.
type pen struct{ bytes.Buffer }

func (p *pen) open(height int, title string) {
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		width, height, width, height)
	fmt.Fprintf(p, "<title>%s</title>\n%s", escape(title), style)
	fmt.Fprintf(p, `<rect class="bg" width="%d" height="%d"/>`+"\n", width, height)
	p.text(left, 26, "ink title", "start", title)
}

func (p *pen) close(w io.Writer) error {
	p.WriteString("</svg>\n")
	if _, err := p.WriteTo(w); err != nil {
		return fmt.Errorf("plot: write: %w", err)
	}
	return nil
}

func (p *pen) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(p, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, px(x1), px(y1), px(x2), px(y2))
}

func (p *pen) text(x, y float64, class, anchor, s string) {
	fmt.Fprintf(p, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", class, px(x), px(y), anchor,
		escape(s))
}

// px writes a position: a hundredth of a pixel is enough, and the same on every machine.
func px(v float64) string {
	s := fmt.Sprintf("%.2f", v)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// escape also replaces what XML 1.0 (§2.2) has no way to say.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

// check reports whether a value can be drawn; where names it in the error.
func check(v float64, log bool, where string) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("%w: %s: %v is not finite", ErrValue, where, v)
	case log && v <= 0:
		return fmt.Errorf("%w: %s: %v on a logarithmic axis", ErrValue, where, v)
	}
	return nil
}
