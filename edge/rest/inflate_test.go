package rest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/internal/cputime"
	"agentstream/schema"
)

func zstded(t testing.TB, text string, opts ...zstd.EOption) string {
	t.Helper()
	w, err := zstd.NewWriter(nil, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return string(w.EncodeAll([]byte(text), nil))
}

// streamedZstd is a frame that does not tell its size, with a window of its own.
func streamedZstd(t testing.TB, text string, window int) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitAfterSeq(text, "\n") {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil { // before the end: the frame has begun without its size
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// lying is a zstd frame of one empty block that says that it expands to size bytes.
func lying(size uint64) string {
	b := []byte{0x28, 0xB5, 0x2F, 0xFD, 0xE0} // one segment, a size of eight bytes
	b = binary.LittleEndian.AppendUint64(b, size)
	return string(append(b, 1, 0, 0))
}

func TestCodedBodies(t *testing.T) {
	h := edgetest.NewHouse(t)
	lines := strings.Repeat(edgetest.GoodLine+"\n", 3000)
	for i, tt := range []struct{ name, coding, body string }{
		{"gzip", "gzip", edgetest.Gzip(t, lines)},
		{"gzip by its old name", "X-GZIP", edgetest.Gzip(t, lines)},
		{"gzip in two members", "gzip", edgetest.Gzip(t, lines[:len(lines)/2]) + edgetest.Gzip(t, lines[len(lines)/2:])},
		{"zstd", "zstd", zstded(t, lines)},
		{"zstd in two frames", " ZStd ", zstded(t, lines[:len(lines)/2]) + zstded(t, lines[len(lines)/2:])},
		{"zstd of unknown size", "zstd", streamedZstd(t, lines, 8<<20)},
		{"none", "identity", lines},
		{"none, said so", "", lines},
	} {
		for _, chunked := range []bool{false, true} {
			run := fmt.Sprintf("run_%d_%v", i, chunked)
			r := h.Request("POST", "/v1/agent/runs/"+run+"/events", tt.body, "Content-Encoding", tt.coding)
			if chunked {
				r.ContentLength = -1
			}
			resp, err := h.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 || h.Last(run) != 3000 {
				t.Errorf("%s, chunked %v: %d, %d events", tt.name, chunked, resp.StatusCode, h.Last(run))
			}
		}
	}
	a := h.Do("POST", "/v1/agent/runs", edgetest.Gzip(t, `{"run_id":"mine"}`), "Content-Encoding", "gzip",
		"Content-Type", "application/json")
	if a.Status != 201 || h.Last("mine") != 1 {
		t.Errorf("a run begun: %d %s", a.Status, a.Body)
	}
	a = h.Do("POST", "/v1/agent/runs/mine/messages", zstded(t, `{"content":"hello"}`), "Content-Encoding", "zstd")
	if a.Status != 202 || h.Last("mine") != 2 {
		t.Errorf("a command: %d %s", a.Status, a.Body)
	}
}

func TestBadCodedBodies(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.MaxBodyBytes = 1 << 20 })
	post := func(body string, codings ...string) edgetest.Reply {
		var headers []string
		for _, c := range codings {
			headers = append(headers, "Content-Encoding", c)
		}
		return h.Do("POST", "/v1/agent/runs/bad/events", body, headers...)
	}
	for _, codings := range [][]string{{"br"}, {"deflate"}, {"compress"}, {"gzip, gzip"}, {"gzip,zstd"},
		{"gzip", "gzip"}, {"identity", "gzip"}, {"identity, gzip"}, {"*"}, {"gzip;q=1"}, {"aws-chunked"}} {
		a := post(edgetest.Gzip(t, edgetest.GoodLine), codings...)
		a.Expect(t, 415, "UNSUPPORTED-MEDIA-TYPE")
		if got := a.Header.Get("Accept-Encoding"); got != "gzip, zstd" {
			t.Errorf("%q: Accept-Encoding %q", codings, got)
		}
	}
	if a := h.Do("POST", "/v1/agent/runs/bad/events", edgetest.GoodLine, "Content-Type",
		"text/html"); a.Header.Get("Accept-Encoding") != "" {
		t.Error("a media type that is refused says Accept-Encoding")
	}
	zipped, packed := edgetest.Gzip(t, edgetest.GoodLine), zstded(t, edgetest.GoodLine)
	flipped := []byte(zipped)
	flipped[len(flipped)-6] ^= 1 // the checksum
	for _, tt := range []struct{ coding, body string }{
		{"gzip", edgetest.GoodLine}, {"gzip", packed}, {"gzip", zipped[:len(zipped)-1]}, {"gzip", zipped[:12]},
		{"gzip", zipped[:3]}, {"gzip", zipped + "x"}, {"gzip", string(flipped)},
		{"zstd", edgetest.GoodLine}, {"zstd", zipped}, {"zstd", packed[:len(packed)-1]}, {"zstd", packed[:5]},
		{"zstd", packed + "xxxxxxxx"}, {"zstd", lying(1000)},
	} {
		post(tt.body, tt.coding).Expect(t, 400, "BAD-REQUEST")
	}
	large := strings.Repeat("\n", 1<<20) + edgetest.GoodLine
	for _, tt := range []struct{ coding, body string }{
		{"gzip", edgetest.Gzip(t, large)}, {"gzip", edgetest.Gzip(t, large[:1<<19]) + edgetest.Gzip(t, large[1<<19:])},
		{"zstd", zstded(t, large)}, {"zstd", streamedZstd(t, large, 1<<20)},
		{"zstd", zstded(t, large[:1<<19]) + zstded(t, large[1<<19:])},
		{"zstd", lying(9 << 20)}, {"zstd", lying(1 << 60)},
		{"zstd", streamedZstd(t, strings.Repeat(edgetest.GoodLine+"\n", 10), 16<<20)},
	} {
		post(tt.body, tt.coding).Expect(t, 413, schema.CodeMalformed)
	}
	wide := edgetest.NewHouse(t, func(c *edge.Config) { c.MaxBodyBytes = 64 << 20 })
	wide.Do("POST", "/v1/agent/runs/bad/events", streamedZstd(t, edgetest.GoodLine, 16<<20), "Content-Encoding",
		"zstd").Expect(t, 413, schema.CodeMalformed)
	if a := wide.Do("POST", "/v1/agent/runs/bad/events", streamedZstd(t, edgetest.GoodLine, 8<<20), "Content-Encoding",
		"zstd"); a.Status != 200 {
		t.Errorf("the largest window: %d %s", a.Status, a.Body)
	}
	// What is exactly as large as it may be is taken, and what has arrived is bounded as before.
	exact := strings.Repeat("\n", 1<<20-len(edgetest.GoodLine)) + edgetest.GoodLine
	for _, tt := range []struct{ coding, body string }{{"gzip", edgetest.Gzip(t, exact)}, {"zstd", zstded(t, exact)},
		{"zstd", streamedZstd(t, exact, 8<<20)}} {
		if a := post(tt.body, tt.coding); a.Status != 200 {
			t.Errorf("%s: %d %s", tt.coding, a.Status, a.Body)
		}
	}
	post(strings.Repeat("x", 1<<20+1), "gzip").Expect(t, 413, schema.CodeMalformed)
	if h.Last("bad") != 3 {
		t.Errorf("%d events", h.Last("bad"))
	}
}

// Bombs by the hundred: what they cost in memory is bounded by the processors and not by the senders, in time by
// what they are allowed to expand to; and a good request beside them is served.
func TestBombs(t *testing.T) {
	h := edgetest.NewHouse(t)
	zeros := strings.Repeat("\x00", 24<<20)
	empty := edgetest.Gzip(t, "")
	bombs := map[string][2]string{
		"gzip":              {"gzip", edgetest.Gzip(t, zeros)},
		"zstd":              {"zstd", streamedZstd(t, zeros, 8<<20)},
		"zstd that tells":   {"zstd", zstded(t, zeros)},
		"zstd that lies":    {"zstd", lying(8 << 20)},
		"members of gzip":   {"gzip", strings.Repeat(empty, 1<<20/len(empty))},
		"frames of zstd":    {"zstd", strings.Repeat(lying(0), 1<<20/len(lying(0)))},
		"zstd of no window": {"zstd", strings.Repeat(zstded(t, "\n"), 1<<20/len(zstded(t, "\n")))},
	}
	for name, bomb := range bombs {
		began := cputime.Process()
		a := h.Do("POST", "/v1/agent/runs/bad/events", bomb[1], "Content-Encoding", bomb[0])
		took := cputime.Process() - began
		if a.Status/100 != 4 || took > 20*time.Second {
			t.Errorf("%s: %d in %v: %s", name, a.Status, took, a.Body)
		}
		t.Logf("%s: %d bytes, %d in %v", name, len(bomb[1]), a.Status, took)
	}
	three := [][2]string{{"zstd", lying(8 << 20)}, {"zstd", zstded(t, zeros[:9<<20])},
		{"gzip", edgetest.Gzip(t, zeros[:9<<20])}}
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	grown := heapPeak(func() {
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				bomb := three[i%3]
				r := h.Request("POST", "/v1/agent/runs/bad/events", bomb[1], "Content-Encoding", bomb[0])
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
		}
		if a := h.Do("POST", "/v1/agent/runs/good/events", edgetest.Gzip(t, edgetest.GoodLine), "Content-Encoding",
			"gzip"); a.Status != 200 {
			t.Errorf("a good body: %d", a.Status)
		}
		wg.Wait()
	})
	t.Logf("300 bombs at once: %d MiB more", grown>>20)
	if grown > 160<<20 {
		t.Errorf("%d MiB for 300 bombs at once", grown>>20)
	}
	if h.Last("bad") != 0 {
		t.Errorf("%d events", h.Last("bad"))
	}
}
