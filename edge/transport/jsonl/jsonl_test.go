package jsonl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/edge/transport/jsonl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]jsonl.Coding{
		"": "", "identity": "", "br": "", "gzip": "gzip", "GZIP": "gzip", "x-gzip": "gzip", "zstd": "zstd",
		"gzip, deflate, br, zstd": "zstd",
		"gzip;q=1.0, zstd;q=0.5":  "gzip", "zstd;q=0,gzip;q=0": "", "zstd;q=0, gzip": "gzip", "*": "zstd", "*;q=0": "",
		"zstd;q=0,*": "gzip", "gzip;q=0,*;q=0.1": "zstd",
		"identity, gzip;q=0.5": "", "identity;q=0.5, gzip": "gzip", "identity,gzip": "gzip", "identity;q=0": "",
		"gzip;q=2": "", "gzip;q=x": "", "gzip;q=-1": "", "gzip;q=NaN": "",
		" gzip ; q=0.3 , ,;q=1": "gzip", "gzip;level=9": "gzip", "gzip;q=0.0001": "",
	} {
		if got := jsonl.Negotiate([]string{accept}); got != want {
			t.Errorf("%q: %q, want %q", accept, got, want)
		}
	}
	if got := jsonl.Negotiate([]string{"deflate", "gzip"}); got != jsonl.Gzip {
		t.Errorf("%q", got)
	}
	if got := jsonl.Negotiate(nil); got != jsonl.Identity {
		t.Errorf("%q", got)
	}
}

func TestConfig(t *testing.T) {
	if _, err := jsonl.New(jsonl.Config{WriteTimeout: -1}); err == nil {
		t.Error("a negative time-out is taken")
	}
}

// serve runs fn for each request.
func serve(t *testing.T, cfg jsonl.Config, fn func(*jsonl.LineTransport, http.ResponseWriter, *http.Request)) string {
	t.Helper()
	tr, err := jsonl.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fn(tr, w, r) }))
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10) // so that who does not read is soon felt
		return ctx
	}
	srv.Start()
	t.Cleanup(func() { srv.Close(); http.DefaultClient.CloseIdleConnections() })
	return srv.URL
}

func decode(t *testing.T, resp *http.Response) ([]byte, error) {
	t.Helper()
	var r io.Reader = resp.Body
	switch resp.Header.Get("Content-Encoding") {
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	}
	return io.ReadAll(r)
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity") // so that the client does not decode by itself
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// lines are of sizes around those at which the sink changes its ways.
func lines() (all [][]byte) {
	for _, n := range []int{2, 100, 64<<10 - 2, 64<<10 - 1, 64 << 10, 64<<10 + 1, 3, 300 << 10, 1, 512 << 10, 70} {
		all = append(all, bytes.Repeat([]byte{byte('a' + n%26)}, n))
	}
	for i := range 3000 {
		all = append(all, fmt.Appendf(nil, `{"seq":%d}`, i))
	}
	return all
}

// TestSink: lines come back as they were, in each coding, also from encoders that were used before
// and from some that were left in the middle.
func TestSink(t *testing.T) {
	all := lines()
	want := append(bytes.Join(all, []byte("\n")), '\n')
	var written sync.Map
	url := serve(t, jsonl.Config{}, func(tr *jsonl.LineTransport, w http.ResponseWriter, r *http.Request) {
		s, err := tr.Open(w, jsonl.Coding(r.URL.Query().Get("coding")))
		if err != nil {
			t.Error(err)
			return
		}
		for i, l := range all {
			if err := s.WriteLine(l); err != nil {
				t.Error(err)
			}
			if i == 3 && r.URL.Query().Has("cut") {
				if err := s.Flush(); err != nil {
					t.Error(err)
				}
				s.Close()
				panic(http.ErrAbortHandler)
			}
		}
		if err := s.Finish(); err != nil {
			t.Error(err)
		}
		s.Close() // nothing left to do
		written.Store(s.BytesWritten(), true)
	})
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			coding := []string{"", "gzip", "zstd"}[i%3]
			if i%4 == 3 {
				if got, err := decode(t, get(t, url+"?cut=1&coding="+coding)); err == nil || !bytes.HasPrefix(want, got) {
					t.Errorf("%q: a cut body is read as %d bytes without an error", coding, len(got))
				}
				return
			}
			resp := get(t, url+"?coding="+coding)
			if got, err := decode(t, resp); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%q: %d bytes of %d, %v", coding, len(got), len(want), err)
			}
			if resp.Header.Get("Content-Encoding") != coding {
				t.Errorf("%v", resp.Header)
			}
		})
	}
	wg.Wait()
	if _, ok := written.Load(int64(len(want))); !ok {
		t.Errorf("Written is not %d", len(want))
	}
}

// TestEmpty: no line at all is a body of no line, ended cleanly.
func TestEmpty(t *testing.T) {
	url := serve(t, jsonl.Config{}, func(tr *jsonl.LineTransport, w http.ResponseWriter, r *http.Request) {
		s, err := tr.Open(w, jsonl.Coding(r.URL.Query().Get("coding")))
		if err == nil {
			err = s.Finish()
		}
		if err != nil {
			t.Error(err)
		}
	})
	for _, coding := range []string{"", "gzip", "zstd"} {
		if got, err := decode(t, get(t, url+"?coding="+coding)); err != nil || len(got) != 0 {
			t.Errorf("%q: %q, %v", coding, got, err)
		}
	}
}

func TestSlowAndGone(t *testing.T) {
	failed := make(chan error, 1)
	noise := make([]byte, 256<<10) // does not compress
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	url := serve(t, jsonl.Config{WriteTimeout: 200 * time.Millisecond},
		func(tr *jsonl.LineTransport, w http.ResponseWriter, r *http.Request) {
			s, err := tr.Open(w, jsonl.Coding(r.URL.Query().Get("coding")))
			for err == nil {
				err = s.WriteLine(noise)
			}
			if s != nil {
				s.Close()
			}
			failed <- err
			panic(http.ErrAbortHandler)
		})
	for _, coding := range []string{"", "gzip", "zstd"} {
		resp := get(t, url+"?coding="+coding) // and is not read
		if err := <-failed; !errors.Is(err, dialect.ErrSlowClient) {
			t.Errorf("%q: %v", coding, err)
		}
		resp.Body.Close()
		resp = get(t, url+"?coding="+coding)
		resp.Body.Close()
		if err := <-failed; !errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("%q: %v", coding, err)
		}
	}
}

func TestNoDeadlines(t *testing.T) {
	tr, err := jsonl.New(jsonl.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if _, err := tr.Open(w, jsonl.Gzip); err == nil || !strings.Contains(err.Error(), "deadline") || w.Body.Len() > 0 ||
		len(w.Header()) > 0 {
		t.Errorf("%v, %d bytes, %v", err, w.Body.Len(), w.Header())
	}
}

// TestMemory prints what an open sink holds and fails when that is more than it should.
func TestMemory(t *testing.T) {
	const n = 16
	tr, err := jsonl.New(jsonl.Config{})
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // pools are emptied in two steps
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	for _, coding := range []jsonl.Coding{jsonl.Identity, jsonl.Gzip, jsonl.Zstd} {
		before := heap()
		sinks := make([]*jsonl.LineSink, n)
		for i := range sinks {
			if sinks[i], err = tr.Open(patient{httptest.NewRecorder()}, coding); err != nil {
				t.Fatal(err)
			}
			for _, l := range lines() {
				if err := sinks[i].WriteLine(l); err != nil {
					t.Fatal(err)
				}
			}
		}
		each := (int64(heap()) - int64(before)) / n
		t.Logf("%q: %d KiB for each open sink", coding, each>>10)
		if each > 3<<19 {
			t.Errorf("%q: %d bytes for each open sink", coding, each)
		}
		for _, s := range sinks {
			s.Close()
		}
	}
}

// patient takes deadlines and keeps nothing.
type patient struct{ http.ResponseWriter }

func (patient) Write(b []byte) (int, error)      { return len(b), nil }
func (patient) SetWriteDeadline(time.Time) error { return nil }
func (patient) FlushError() error                { return nil }
