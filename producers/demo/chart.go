package demo

import (
	"fmt"
	"math"
	"strings"
)

type bar struct {
	name  string
	value float64
}

// chart draws bars on a logarithmic scale, as SVG.
func chart(title string, bars ...bar) []byte {
	const left, unit, height = 60, 40, 24
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, left+unit*8+80, 40+height*len(bars))
	fmt.Fprintf(&b, `<text x="%d" y="20">%s</text>`, left, title)
	for i, v := range bars {
		y, long := 32+height*i, unit*math.Log10(v.value)
		fmt.Fprintf(&b, `<text x="8" y="%d">%s</text><rect x="%d" y="%d" width="%.0f" height="16" fill="#4c78a8"/><text x="%.0f" y="%d">%.0f</text>`,
			y+13, v.name, left, y, long, left+long+6, y+13, v.value)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
