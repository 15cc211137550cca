package agentstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// frames parses a stream that arrives cut at the given places.
func frames(t *testing.T, p *sseParser, stream string, cuts ...int) []string {
	t.Helper()
	var got []string
	from := 0
	for _, to := range append(cuts, len(stream)) {
		for chunk := []byte(stream[from:to]); len(chunk) > 0; {
			f, rest, ok, err := p.next(chunk)
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			if ok && f.Data == nil {
				got = append(got, "id="+f.ID)
			} else if ok {
				got = append(got, fmt.Sprintf("id=%s event=%s data=%q", f.ID, f.Event, f.Data))
			}
			chunk = rest
		}
		from = to
	}
	return got
}

func TestSSEParser(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"one line", "data: a\n\n", []string{`id= event= data="a"`}},
		{"all fields", "event: text.delta\ndata: {}\nid: 7\n\n", []string{`id=7 event=text.delta data="{}"`}},
		{"CRLF", "data: a\r\nid: 1\r\n\r\ndata: b\r\n\r\n", []string{`id=1 event= data="a"`, `id=1 event= data="b"`}},
		{"CR", "data: a\rid: 1\r\rdata: b\r\r", []string{`id=1 event= data="a"`, `id=1 event= data="b"`}},
		{"mixed ends", "data: a\r\ndata: b\rdata: c\n\n", []string{`id= event= data="a\nb\nc"`}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{`id= event= data="a"`}},
		{"mark in the middle is text", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []string{`id= event= data="a"`}},
		{"no space, two spaces", "data:a\ndata:  b\n\n", []string{`id= event= data="a\n b"`}},
		{"field without colon", "data\n\n", []string{`id= event= data=""`}},
		{"comment", ": keepalive\n\ndata: a\n\n", []string{`id= event= data="a"`}},
		{"unknown field", "datas: x\n data: y\ndata: a\n\n", []string{`id= event= data="a"`}},
		{"cut frame is nothing", "data: a\nid: 5\n", nil},
		{"event without data is nothing", "event: x\n\ndata: a\n\n", []string{`id= event= data="a"`}},
		{"id with NUL is no id", "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n",
			[]string{`id=1 event= data="a"`, `id=1 event= data="b"`}},
		{"empty id clears", "id: 1\ndata: a\n\nid\ndata: b\n\n", []string{`id=1 event= data="a"`, `id= event= data="b"`}},
		{"id alone moves the cursor", "id: 1\ndata: a\n\nid: 4\n\nid: 4\n\n", []string{`id=1 event= data="a"`, `id=4`}},
		{"comment between data and its end", "data: a\n: x\ndata: b\n\n", []string{`id= event= data="a\nb"`}},
		{"empty frames before data", "\n\nevent: x\n\nda", nil},
		{"empty stream", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := frames(t, &sseParser{}, c.in); !slices.Equal(got, c.want) {
				t.Fatalf("whole: got %q, want %q", got, c.want)
			}
			for cut := range len(c.in) + 1 {
				if got := frames(t, &sseParser{}, c.in, cut); !slices.Equal(got, c.want) {
					t.Fatalf("cut at %d: got %q, want %q", cut, got, c.want)
				}
			}
			var every []int
			for i := range c.in {
				every = append(every, i)
			}
			if got := frames(t, &sseParser{}, c.in, every...); !slices.Equal(got, c.want) {
				t.Fatalf("byte by byte: got %q, want %q", got, c.want)
			}
		})
	}
}

// A cursor from half a frame would skip the event that was in it.
func TestSSEParserTakesIDsFromWholeFramesOnly(t *testing.T) {
	const first, second = "id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n"
	for cut := range len(second) {
		p := &sseParser{}
		frames(t, p, first+second[:cut])
		if p.lastID != "1" {
			t.Fatalf("%q: id %q is committed", second[:cut], p.lastID)
		}
		p.reset()
		if got := frames(t, p, "data: c\n\n"); !slices.Equal(got, []string{`id=1 event= data="c"`}) {
			t.Fatalf("after a break at %d: %q", cut, got)
		}
	}
}

func TestSSEParserRetry(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
	}{
		{"retry: 1500\n\n", 1500 * time.Millisecond}, {"retry: x\n\n", 0}, {"retry: -5\n\n", 0},
		{"retry: +5\n\n", 0}, {"retry\n\n", 0}, {"retry: 99999999\n\n", maxRetryHint},
	} {
		p := &sseParser{}
		frames(t, p, c.in)
		if p.retry != c.want {
			t.Errorf("%q: %v, want %v", c.in, p.retry, c.want)
		}
	}
}

func TestSSEParserBoundsFrames(t *testing.T) {
	const most = 1 << 20
	chunk := []byte(strings.Repeat("x", most/8))
	for _, c := range []struct{ name, between string }{{"line", ""}, {"data", "\ndata: "}, {"data CR", "\rdata: "}} {
		p := &sseParser{most: most}
		var err error
		fed := 0
		p.next([]byte("data: "))
		for ; err == nil && fed < 2*most; fed += len(chunk) {
			if _, _, _, err = p.next(chunk); err == nil {
				_, _, _, err = p.next([]byte(c.between))
			}
		}
		if !errors.Is(err, errFrameTooLarge) || fed > most+len(chunk) {
			t.Errorf("%s: %v after %d bytes", c.name, err, fed)
		}
	}
}

// What one large frame took is given back.
func TestSSEParserLetsGoOfLargeBuffers(t *testing.T) {
	p := &sseParser{}
	frames(t, p, "data: "+strings.Repeat("x", 4*maxKept)+"\n\n")
	frames(t, p, "data: y\n\n")
	if cap(p.line) > maxKept || cap(p.data) > maxKept {
		t.Errorf("line keeps %d bytes, data %d", cap(p.line), cap(p.data))
	}
}

// FuzzSSEParser compares pieces with the whole: where the network cuts must not matter.
func FuzzSSEParser(f *testing.F) {
	f.Add("event: a\r\ndata: b\rid: 3\n\n: c\n\n", uint16(5), uint16(9))
	f.Add("\xef\xbb\xbfdata\rdata:\r\n\r\rid:\x00\n\n", uint16(1), uint16(3))
	f.Fuzz(func(t *testing.T, stream string, a, b uint16) {
		cuts := []int{int(a) % (len(stream) + 1), int(b) % (len(stream) + 1)}
		slices.Sort(cuts)
		var whole, cut sseParser
		if x, y := frames(t, &whole, stream), frames(t, &cut, stream, cuts...); !slices.Equal(x, y) {
			t.Fatalf("cut at %v: %q, want %q", cuts, y, x)
		}
		if whole.lastID != cut.lastID || whole.retry != cut.retry {
			t.Fatalf("cut at %v: id %q retry %v, want %q %v", cuts, cut.lastID, cut.retry, whole.lastID, whole.retry)
		}
	})
}
