package plot

import (
	"fmt"
	"io"
	"math"
)

// Series is one line of a chart: the points (X[i], Y[i]), joined in the order given.
type Series struct {
	Name string
	X, Y []float64
}

// Chart is lines over two axes.
type Chart struct {
	Title, XLabel, YLabel string
	// LogX and LogY make an axis logarithmic; all its values must then be above zero.
	LogX, LogY bool
	// Series are drawn in this order, a later one above an earlier one. One without points is left out.
	Series []Series
}

const (
	plotTop    = 44
	plotHeight = 320
	rowHeight  = 18
	// dots are drawn while there are few: they show where was measured.
	dotsUpTo = 40
)

// SVG writes the chart as one document. It returns an error that wraps [ErrNothing] or [ErrValue]
// for a chart that cannot be drawn, and then writes nothing; else what w returned.
func (c Chart) SVG(w io.Writer) error {
	x, y, err := c.axes()
	if err != nil {
		return err
	}
	lines := c.nonEmpty()
	legend := 0
	if len(lines) > 1 || lines[0].Name != "" {
		legend = len(lines) * rowHeight
	}
	var p pen
	p.open(plotTop+plotHeight+56+legend, c.Title)
	p.frame(x, y)
	p.text((left+width-right)/2, plotTop+plotHeight+40, "dim", "middle", c.XLabel)
	fmt.Fprintf(&p, `<text class="dim" transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		plotTop+plotHeight/2, escape(c.YLabel))
	for i, s := range lines {
		p.series(i, s, x, y)
		if legend > 0 {
			p.legend(i, s.Name, float64(plotTop+plotHeight+58+i*rowHeight))
		}
	}
	return p.close(w)
}

// nonEmpty returns the series that have points.
func (c Chart) nonEmpty() (out []Series) {
	for _, s := range c.Series {
		if len(s.X) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func (c Chart) axes() (x, y axis, err error) {
	xlo, xhi, ylo, yhi := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, s := range c.Series {
		if len(s.X) != len(s.Y) {
			return x, y, fmt.Errorf("%w: series %q has %d x and %d y", ErrValue, s.Name, len(s.X), len(s.Y))
		}
		for i := range s.X {
			where := fmt.Sprintf("series %q, point %d", s.Name, i)
			if err := check(s.X[i], c.LogX, where); err != nil {
				return x, y, err
			}
			if err := check(s.Y[i], c.LogY, where); err != nil {
				return x, y, err
			}
			xlo, xhi = min(xlo, s.X[i]), max(xhi, s.X[i])
			ylo, yhi = min(ylo, s.Y[i]), max(yhi, s.Y[i])
		}
	}
	if xhi < xlo {
		return x, y, fmt.Errorf("%w: chart %q has no points", ErrNothing, c.Title)
	}
	return newAxis(xlo, xhi, c.LogX, 8), newAxis(ylo, yhi, c.LogY, 6), nil
}

func (p *pen) frame(x, y axis) {
	for _, v := range y.ticks {
		at := yPos(y, v)
		p.line("grid", left, at, width-right, at)
		p.text(left-8, at+4, "dim", "end", number(v))
	}
	for _, v := range x.ticks {
		at := xPos(x, v)
		p.line("grid", at, plotTop, at, plotTop+plotHeight)
		p.text(at, plotTop+plotHeight+18, "dim", "middle", number(v))
	}
	p.line("axis", left, plotTop+plotHeight, width-right, plotTop+plotHeight)
	p.line("axis", left, plotTop, left, plotTop+plotHeight)
}

func (p *pen) series(i int, s Series, x, y axis) {
	colour := palette[i%len(palette)]
	fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"%s points="`, colour,
		dash(i))
	for k := range s.X {
		if k > 0 {
			p.WriteByte(' ')
		}
		p.WriteString(px(xPos(x, s.X[k])) + "," + px(yPos(y, s.Y[k])))
	}
	p.WriteString("\"/>\n")
	if len(s.X) > dotsUpTo {
		return
	}
	for k := range s.X {
		fmt.Fprintf(p, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`+"\n", px(xPos(x, s.X[k])), px(yPos(y, s.Y[k])), colour)
	}
}

func (p *pen) legend(i int, name string, at float64) {
	fmt.Fprintf(p, `<line stroke="%s" stroke-width="3"%s x1="%d" y1="%s" x2="%d" y2="%s"/>`+"\n",
		palette[i%len(palette)], dash(i), left, px(at-4), left+28, px(at-4))
	p.text(left+36, at, "ink", "start", name)
}

func dash(i int) string {
	if d := dashes[i/len(palette)%len(dashes)]; d != "" {
		return ` stroke-dasharray="` + d + `"`
	}
	return ""
}

func xPos(a axis, v float64) float64 { return left + a.at(v)*(width-left-right) }
func yPos(a axis, v float64) float64 { return plotTop + (1-a.at(v))*plotHeight }
