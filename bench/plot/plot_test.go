package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// element is an SVG element with its attributes and text.
type element struct {
	name string
	attr map[string]string
	text string
}

// parse reads a document to its end; a document that is not well-formed fails the test.
func parse(t *testing.T, doc []byte) (out []element) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(doc))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("the document is no XML: %v\n%s", err, doc)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			e := element{name: tok.Name.Local, attr: map[string]string{}}
			for _, a := range tok.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			out = append(out, e)
		case xml.CharData:
			if len(out) > 0 {
				out[len(out)-1].text += string(tok)
			}
		}
	}
}

func draw(t *testing.T, svg func(io.Writer) error) ([]byte, []element) {
	t.Helper()
	var b bytes.Buffer
	if err := svg(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), parse(t, b.Bytes())
}

func texts(es []element) (out []string) {
	for _, e := range es {
		if e.name == "text" {
			out = append(out, strings.TrimSpace(e.text))
		}
	}
	return out
}

func points(t *testing.T, es []element) (out [][][2]float64) {
	t.Helper()
	for _, e := range es {
		if e.name != "polyline" {
			continue
		}
		var line [][2]float64
		for _, p := range strings.Fields(e.attr["points"]) {
			xs, ys, ok := strings.Cut(p, ",")
			x, err1 := strconv.ParseFloat(xs, 64)
			y, err2 := strconv.ParseFloat(ys, 64)
			if !ok || err1 != nil || err2 != nil {
				t.Fatalf("point %q", p)
			}
			line = append(line, [2]float64{x, y})
		}
		out = append(out, line)
	}
	return out
}

func growth() Chart {
	return Chart{Title: "CPU < & \"cost\"", XLabel: "watchers", YLabel: "µs", LogX: true, LogY: true, Series: []Series{
		{Name: "ours", X: []float64{1, 10, 100, 10000}, Y: []float64{1, 10, 100, 10000}},
		{Name: "peer", X: []float64{1, 10000}, Y: []float64{10, 10}},
	}}
}

func TestChartPlacesPointsByTheirScale(t *testing.T) {
	_, es := draw(t, growth().SVG)
	lines := points(t, es)
	if len(lines) != 2 || len(lines[0]) != 4 || len(lines[1]) != 2 {
		t.Fatalf("lines: %v", lines)
	}
	// Equal ratios are equal distances on a logarithmic axis: 1 to 10 as 10 to 100.
	a, b, c, d := lines[0][0], lines[0][1], lines[0][2], lines[0][3]
	if math.Abs((b[0]-a[0])-(c[0]-b[0])) > 0.02 || math.Abs((d[0]-c[0])-2*(b[0]-a[0])) > 0.02 {
		t.Errorf("x is not logarithmic: %v", lines[0])
	}
	if math.Abs((a[1]-b[1])-(b[1]-c[1])) > 0.02 || a[1] <= b[1] {
		t.Errorf("y is not logarithmic, or does not grow upwards: %v", lines[0])
	}
	if lines[1][0][1] != b[1] {
		t.Errorf("the same value of two series at %v and %v", lines[1][0][1], b[1])
	}
	got := texts(es)
	for _, want := range []string{`CPU < & "cost"`, "watchers", "µs", "ours", "peer", "1", "100", "10k"} {
		if !slices.Contains(got, want) {
			t.Errorf("no text %q in %q", want, got)
		}
	}
}

func TestLinearAxisBeginsAtZero(t *testing.T) {
	_, es := draw(t, Chart{Title: "t", Series: []Series{{X: []float64{0, 50, 100}, Y: []float64{50, 75, 100}}}}.SVG)
	line := points(t, es)[0]
	if line[0][1] != plotTop+plotHeight/2 || line[2][1] != plotTop {
		t.Errorf("50 and 100 of 100 are at %v and %v", line[0][1], line[2][1])
	}
	if line[1][0]-line[0][0] != line[2][0]-line[1][0] {
		t.Errorf("x is not linear: %v", line)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		log    bool
		want   string
	}{
		{0, 100, false, "0 20 40 60 80 100"},
		{3, 7, false, "0 2 4 6 8"},
		{0, 0, false, "0 0.2 0.4 0.6 0.8 1"},
		{-5, 5, false, "-6 -4 -2 0 2 4 6"},
		{0, 0.003, false, "0 0.0005 0.001 0.0015 0.002 0.0025 0.003"},
		{1, 10000, true, "1 10 100 1000 10k"},
		{0.3, 8, true, "0.1 0.2 0.5 1 2 5 10"},
		{10, 10, true, "10 20 50 100"},
		{1000, 5e6, true, "1000 10k 100k 1M 10M"},
	} {
		a := newAxis(c.lo, c.hi, c.log, 6)
		var got []string
		for _, v := range a.ticks {
			got = append(got, number(v))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v to %v: ticks %s, want %s", c.lo, c.hi, s, c.want)
		}
		for _, v := range []float64{c.lo, c.hi} {
			if at := a.at(v); at < -1e-9 || at > 1+1e-9 {
				t.Errorf("%v to %v: %v lies at %v, outside", c.lo, c.hi, v, at)
			}
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.00002: "2e-05", 0.12345: "0.123", 1: "1", 1.5: "1.5", 9.999: "10", 123.4: "123", 1500: "1500", 20000: "20k",
		123456: "123k", 2.5e6: "2.5M", 3e9: "3G", -12000: "-12k",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestBars(t *testing.T) {
	b := Bars{Title: "CPU", Unit: "s/M", Bars: []Bar{{"ours", 50, "1 run"}, {"peer", 100, ""}, {"none", 0, ""}}}
	_, es := draw(t, b.SVG)
	var widths []float64
	for _, e := range es {
		if e.name == "rect" && e.attr["class"] == "" {
			w, err := strconv.ParseFloat(e.attr["width"], 64)
			if err != nil {
				t.Fatal(err)
			}
			widths = append(widths, w)
		}
	}
	if len(widths) != 3 || math.Abs(widths[1]-2*widths[0]) > 0.02 || widths[2] != 0 || widths[0] <= 0 {
		t.Errorf("widths %v of 50, 100 and 0", widths)
	}
	for _, want := range []string{"ours", "50 s/M  1 run", "100 s/M", "0 s/M"} {
		if !slices.Contains(texts(es), want) {
			t.Errorf("no text %q in %q", want, texts(es))
		}
	}
	if _, es := draw(t, (Bars{Title: "zeros", Bars: []Bar{{Label: "a"}}}).SVG); len(es) == 0 {
		t.Error("nothing was drawn")
	}
}

func TestRefused(t *testing.T) {
	one := func(x, y float64) []Series { return []Series{{Name: "s", X: []float64{x}, Y: []float64{y}}} }
	for name, c := range map[string]struct {
		svg  func(io.Writer) error
		want error
	}{
		"no series":         {Chart{}.SVG, ErrNothing},
		"no points":         {Chart{Series: []Series{{Name: "a"}}}.SVG, ErrNothing},
		"uneven":            {Chart{Series: []Series{{X: []float64{1}}}}.SVG, ErrValue},
		"not a number":      {Chart{Series: one(1, math.NaN())}.SVG, ErrValue},
		"infinite":          {Chart{Series: one(math.Inf(1), 1)}.SVG, ErrValue},
		"zero on log x":     {Chart{LogX: true, Series: one(0, 1)}.SVG, ErrValue},
		"negative on log y": {Chart{LogY: true, Series: one(1, -1)}.SVG, ErrValue},
		"no bars":           {Bars{}.SVG, ErrNothing},
		"negative bar":      {Bars{Bars: []Bar{{"a", -1, ""}}}.SVG, ErrValue},
		"bar not a number":  {Bars{Bars: []Bar{{"a", math.NaN(), ""}}}.SVG, ErrValue},
	} {
		var b bytes.Buffer
		if err := c.svg(&b); !errors.Is(err, c.want) || b.Len() > 0 {
			t.Errorf("%s: error %v, want %v; %d bytes written", name, err, c.want, b.Len())
		}
	}
}

// TestSelfContained also shows that hostile text stays text.
func TestSelfContained(t *testing.T) {
	c := growth()
	c.Series[0].Name = "</text><script>\x00\xff"
	first, es := draw(t, c.SVG)
	again, _ := draw(t, c.SVG)
	if !bytes.Equal(first, again) {
		t.Error("two drawings of the same values differ")
	}
	for _, e := range es {
		if e.name == "script" || e.attr["href"] != "" {
			t.Errorf("element %+v", e)
		}
	}
	if !bytes.Contains(first, []byte("prefers-color-scheme:dark")) {
		t.Error("no colours for a dark scheme")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriteErrorIsReturned(t *testing.T) {
	if err := growth().SVG(full{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}

func TestManySeriesStayApart(t *testing.T) {
	c := Chart{Title: "many"}
	for i := range 2 * len(palette) {
		c.Series = append(c.Series, Series{Name: strconv.Itoa(i), X: []float64{0, 1}, Y: []float64{0, float64(i)}})
	}
	_, es := draw(t, c.SVG)
	seen := map[string]bool{}
	for _, e := range es {
		if e.name == "polyline" {
			k := e.attr["stroke"] + e.attr["stroke-dasharray"]
			if seen[k] {
				t.Errorf("two lines look like %s", k)
			}
			seen[k] = true
		}
	}
	if len(seen) != 2*len(palette) {
		t.Errorf("%d lines of %d", len(seen), 2*len(palette))
	}
}
