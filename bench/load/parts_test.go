package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/schema"
)

func TestLineIsAnEventOfTheSizeAsked(t *testing.T) {
	for _, size := range []int{minSize, 97, 240, 1000, 5000} {
		line := appendLine(nil, size, mark{due: 5, run: 7, n: 9})
		events, err := schema.DecodeBatch("run", line)
		if len(line) != size || err != nil || len(events) != 1 || events[0].Type != "text.delta" {
			t.Errorf("size %d: %d bytes, %v, %v", size, len(line), events, err)
		}
	}
}

// Marks are found wherever the stream is cut, and with their seq where it is there to be read.
func TestScannerFindsMarksInPieces(t *testing.T) {
	var stream []byte
	var want []mark
	for i := range 20 {
		m := mark{due: int64(i)*1e15 + 3, run: 1<<24 - 1 - i, n: int64(i) << 40}
		want = append(want, m)
		stream = fmt.Appendf(stream, "id: %d\ndata: {\"text\":\"a ` of nothing\",\"seq\":%d,\"payload\":", i, i+2)
		stream = append(appendPayload(stream, 120, m), "}\n\n``"...)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 2, markSize - 1, markSize, markSize + 1, 100, len(stream)} {
		var s scanner
		var got []mark
		for rest := stream; len(rest) > 0; {
			n := min(1+rnd.IntN(most), len(rest))
			if most == len(stream) {
				n = len(rest)
			}
			s.scan(slices.Clone(rest[:n]), func(m mark, before []byte) {
				got = append(got, m)
				if seq := seqBefore(before); seq != 0 && seq != int64(len(got)+1) || seq == 0 && n == len(stream) {
					t.Errorf("mark %d has seq %d", len(got)-1, seq)
				}
			})
			rest = rest[n:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("pieces of at most %d: %d marks of %d", most, len(got), len(want))
		}
	}
}

// The account against the simplest model of it: a count for each number.
func TestAccount(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		const sent = 40
		var a account
		counts, order := [sent]int{}, []int64{}
		for n := range int64(sent) {
			for range []int{1, 1, 1, 1, 0, 2, 1, 1}[rnd.IntN(8)] {
				order = append(order, n)
			}
		}
		for range rnd.IntN(6) {
			i, j := rnd.IntN(len(order)), rnd.IntN(len(order))
			order[i], order[j] = order[j], order[i]
		}
		high, late, dup := int64(-1), int64(0), int64(0)
		for _, n := range order {
			a.see(n)
			switch counts[n]++; {
			case counts[n] > 1:
				dup++
			case n < high:
				late++
			}
			high = max(high, n)
		}
		refused := []numberRange{{3, 5}, {30, 31}}
		lost := int64(0)
		for n, c := range counts {
			if c == 0 && (n < 3 || n >= 5) && n != 30 {
				lost++
			}
		}
		if a.countLost(sent, refused) != lost || a.dup != dup || a.late != late {
			t.Fatalf("round %d, %v: lost %d dup %d late %d, want %d %d %d", round, order, a.countLost(sent, refused),
				a.dup, a.late, lost, dup, late)
		}
		if a.countLost(sent, refused) != lost {
			t.Fatal("asking changes the answer")
		}
	}
}

func TestHistogram(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var a, b, h Histogram
	var all []time.Duration
	for i := range 20000 {
		d := time.Duration(rnd.ExpFloat64() * float64(time.Millisecond) * 3)
		all = append(all, d)
		if i%2 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	h.Merge(&a)
	h.Merge(&b)
	slices.Sort(all)
	for _, q := range []float64{0, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(q*float64(len(all)))-1)]
		if got := h.Quantile(q); got < want || float64(got) > float64(want)*(1+1.0/subBuckets)+1 {
			t.Errorf("quantile %v is %v, exactly %v", q, got, want)
		}
	}
	if h.N() != 20000 || h.Max() != all[len(all)-1] {
		t.Errorf("%d, at most %v", h.N(), h.Max())
	}
	var rows int64
	for i, r := range h.buckets() {
		if rows += r.Count; r.To <= r.From || i > 0 && r.From != h.buckets()[i-1].To {
			t.Errorf("row %d is %+v", i, r)
		}
	}
	if rows != h.N() {
		t.Errorf("the rows hold %d of %d", rows, h.N())
	}
	var edges Histogram
	for _, d := range []time.Duration{-5, 0, 1, 127, 128, 1 << 41, 1 << 62} {
		edges.Add(d)
	}
	if edges.Quantile(0) != 0 || edges.Quantile(1) != edges.Max() || edges.N() != 7 || (&Histogram{}).Quantile(0.5) != 0 {
		t.Errorf("edges: %v to %v", edges.Quantile(0), edges.Quantile(1))
	}
}

// pieces feeds a stream in pieces of at most n bytes.
func pieces(f framing, stream []byte, n int) (string, error) {
	var got strings.Builder
	for len(stream) > 0 {
		k := min(n, len(stream))
		if err := f.feed(stream[:k], func(b []byte) { got.Write(b) }); err != nil {
			return got.String(), err
		}
		stream = stream[k:]
	}
	return got.String(), nil
}

func TestChunked(t *testing.T) {
	stream := []byte("5\r\nhello\r\n1;ext=\"a5\"\r\n \r\nA\r\n0123456789\r\n0\r\n\r\n")
	for n := 1; n <= len(stream); n++ {
		if got, err := pieces(&chunked{}, stream, n); got != "hello 0123456789" || !errors.Is(err, errEnded) {
			t.Errorf("pieces of %d: %q, %v", n, got, err)
		}
	}
	for _, bad := range []string{"xyz\r\n", "5\r\nhelloX", "ffffffffff\r\n"} {
		if _, err := pieces(&chunked{}, []byte(bad), 3); !errors.Is(err, errFraming) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestMessages(t *testing.T) {
	frame := func(op byte, body string) []byte {
		switch n := len(body); {
		case n < 126:
			return append([]byte{op, byte(n)}, body...)
		case n < 1<<16:
			return append(binary.BigEndian.AppendUint16([]byte{op, 126}, uint16(n)), body...)
		default:
			return append(binary.BigEndian.AppendUint64([]byte{op, 127}, uint64(n)), body...)
		}
	}
	long, longer := strings.Repeat("l", 300), strings.Repeat("L", 70000)
	stream := slices.Concat(frame(0x81, "a"), frame(0x01, "b"), frame(0x89, "ping"), frame(0x80, long), frame(0x81, ""),
		frame(0x89, ""), frame(0x82, longer), frame(0x88, "\x03\xe8bye"))
	for _, n := range []int{1, 2, 3, 7, 1000, len(stream)} {
		var pongs []string
		m := &frameParser{pong: func(b []byte) error { pongs = append(pongs, string(b)); return nil }}
		got, err := pieces(m, stream, n)
		if got != "ab"+long+longer || !errors.Is(err, errEnded) || !slices.Equal(pongs, []string{"ping", ""}) {
			t.Errorf("pieces of %d: %d bytes, pongs %q, %v", n, len(got), pongs, err)
		}
	}
	for _, bad := range [][]byte{{0x81, 0x81}, {0xc1, 0x01}, {0x89, 126, 0, 200}} {
		if _, err := pieces(&frameParser{}, bad, 1); !errors.Is(err, errFraming) {
			t.Errorf("% x: %v", bad, err)
		}
	}
	if !bytes.Equal(pongFrame([]byte("x")), []byte{0x8a, 0x81, 0, 0, 0, 0, 'x'}) {
		t.Error("pong")
	}
}

func TestReadAnswer(t *testing.T) {
	const two = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\nHTTP/1.1 204 N\r\n\r\n"
	r := bufio.NewReader(strings.NewReader(two))
	for _, want := range []string{"200 ok", "503 bad", "204 "} {
		status, body, err := readAnswer(r, nil)
		if got := fmt.Sprintf("%d %s", status, body); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if _, _, err := readAnswer(r, nil); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last: %v", err)
	}
	for _, bad := range []string{"SSH-2.0-x\r\n", "HTTP/1.1 abc\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"} {
		if _, _, err := readAnswer(bufio.NewReader(strings.NewReader(bad)), nil); err == nil {
			t.Errorf("%q is a response", bad)
		}
	}
}

// stuck is a writer whose first unit takes a second.
type stuck struct {
	clock *clock
	units []unit
	wrote []int64
}

func (s *stuck) write(ctx context.Context, u unit) error {
	if len(s.units) == 0 {
		_ = pause(ctx, time.Second)
	}
	s.units, s.wrote = append(s.units, u), append(s.wrote, s.clock.now())
	return nil
}
func (s *stuck) flush() error                { return nil }
func (s *stuck) close(context.Context) error { return nil }

// A server that makes writers wait is charged for those that queue up meanwhile: no coordinated
// omission.
func TestDueTimesDoNotWaitForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clock{time.Now()}
		w := &stuck{clock: c}
		p := &pace{clock: c, w: w, runs: []int{0, 1}, ledger: newLedger(2), batch: 3, start: 0,
			end: int64(2 * time.Second), every: float64(100 * time.Millisecond)}
		if err := p.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(w.units) != 20 {
			t.Fatalf("%d units in two seconds at ten a second", len(w.units))
		}
		for i, u := range w.units {
			if want := int64(i) * int64(100*time.Millisecond); u.due != want || u.run != i%2 ||
				u.first != int64(i/2*3) || u.count != 3 {
				t.Errorf("unit %d: %+v, due at %d", i, u, want)
			}
			if late := w.wrote[i] - u.due; i < 10 && late != int64(time.Second)-u.due || i > 10 && late != 0 {
				t.Errorf("unit %d is %v late", i, time.Duration(late))
			}
		}
	})
}

func TestProbes(t *testing.T) {
	ctx := t.Context()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "# HELP x\nprocess_cpu_seconds_total 1.5\nprocess_resident_memory_bytes 2.5e+07\nother{a=\"b\"} 1\n")
		}
	}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	m := OfMetrics(srv.URL + "/metrics")
	u, err := Sum(m, m)(ctx)
	if err != nil || u.CPU != 3*time.Second || u.Memory != 50e6 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := OfMetrics(srv.URL + "/else")(ctx); !errors.Is(err, ErrProbe) {
		t.Errorf("a page without figures: %v", err)
	}
	if Sum() != nil {
		t.Error("a probe of nothing")
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return
	}
	if u, err = OfProcess(os.Getpid())(ctx); err != nil || u.Memory < 1<<20 {
		t.Errorf("this process: %+v, %v", u, err)
	}
	if _, err = OfProcess(1 << 30)(ctx); !errors.Is(err, ErrProbe) {
		t.Errorf("no process: %v", err)
	}
}
