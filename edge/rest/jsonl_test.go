package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/edge/transport"
	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// exportRun reads a whole export, decoded. The transport must not decode by itself.
func exportRun(h *edgetest.House, query, coding string, headers ...string) ([]byte, *http.Response, error) {
	h.T.Helper()
	req := h.Request("GET", query, "", headers...)
	req.Header.Set("Accept-Encoding", coding)
	resp, err := h.Client.Do(req)
	if err != nil {
		h.T.Fatal(err)
	}
	defer resp.Body.Close()
	r, err := decoder(resp.Header.Get("Content-Encoding"), resp.Body)
	if err != nil {
		return nil, resp, err
	}
	body, err := io.ReadAll(r)
	return body, resp, err
}

func decoder(coding string, r io.Reader) (io.Reader, error) {
	switch coding {
	case "gzip":
		return gzip.NewReader(r)
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)) // what browsers take
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	return r, nil
}

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestExport(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, s := range schematest.All() {
		lines := schematest.Lines(h.Fill(s.Name, s, 3))
		last := len(lines)
		path := "/v1/agent/runs/" + s.Name + "/replay.jsonl"
		for _, coding := range []string{"identity", "gzip", "zstd"} {
			for _, bound := range [][2]int{{0, last}, {0, 1}, {1, 1}, {last, last}, {2, last - 1}, {last / 2, last},
				{last / 3, last / 2}} {
				got, resp, err := exportRun(h, fmt.Sprintf("%s?after=%d&through=%d", path, bound[0], bound[1]), coding)
				if want := joined(lines[bound[0]:bound[1]]); err != nil || resp.StatusCode != 200 || string(got) != want {
					t.Fatalf("%s %s %v: %d, %v, %d bytes, want %d", s.Name, coding, bound, resp.StatusCode, err, len(got), len(want))
				}
				if resp.Header.Get("Last-Seq") != fmt.Sprint(bound[1]) {
					t.Errorf("%v", resp.Header)
				}
			}
			got, resp, err := exportRun(h, path, coding)
			if err != nil || string(got) != joined(lines) {
				t.Fatalf("%s %s: %v, %d bytes", s.Name, coding, err, len(got))
			}
			wantCoding := strings.TrimPrefix(coding, "identity")
			if hd := resp.Header; hd.Get("Content-Encoding") != wantCoding ||
				hd.Get("Content-Type") != "application/x-ndjson" || hd.Get("Vary") != "Accept-Encoding" ||
				hd.Get("Content-Disposition") != `attachment; filename="`+s.Name+`.jsonl"` ||
				hd.Get("Cache-Control") != "no-store" || hd.Get("Last-Seq") != fmt.Sprint(last) {
				t.Errorf("%s: %v", coding, hd)
			}
		}
		got, _, err := exportRun(h, path+"?types=tool.*,text.delta&child=-", "zstd")
		if want := filtered(t, lines, []string{"-"}, []string{"tool.*", "text.delta"}, false); err != nil ||
			string(got) != joined(want) {
			t.Errorf("%s filtered: %v, %d bytes", s.Name, err, len(got))
		}
		head := h.Do("HEAD", path, "", "Accept-Encoding", "gzip")
		if head.Status != 200 || head.Body != "" || head.Header.Get("Last-Seq") != fmt.Sprint(last) ||
			head.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%d %v", head.Status, head.Header)
		}
	}
}

// TestExportOfARunningRun: what is there at the time of the request, and a clean end.
func TestExportOfARunningRun(t *testing.T) {
	h := edgetest.NewHouse(t)
	for n := 1; n <= 3; n++ {
		h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
		got, resp, err := exportRun(h, "/v1/agent/runs/run/replay.jsonl", "identity")
		if err != nil || bytes.Count(got, []byte("\n")) != n || resp.Header.Get("Last-Seq") != fmt.Sprint(n) {
			t.Fatalf("%d: %v %s", n, err, got)
		}
	}
}

func TestExportRefuses(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Fill("run", schematest.Generate(100, 1), 10)
	const path = "/v1/agent/runs/run/replay.jsonl"
	for query, code := range map[string]string{
		"?after=x": "BAD-CURSOR", "?through=-1": "BAD-CURSOR", "?after=1&after=1": "BAD-REQUEST",
		"?after=9&through=8": "BAD-REQUEST", "?types=a%20b": "BAD-REQUEST", "?a;b": "BAD-REQUEST",
	} {
		h.Do("GET", path+query, "").Expect(t, 400, code)
	}
	for _, query := range []string{"?after=101", "?through=101", "?after=5&through=9007199254740991"} {
		a := h.Do("GET", path+query, "")
		if p := a.Expect(t, 409, "CURSOR-AHEAD"); p.LastSeq != 100 || a.Header.Get("Content-Disposition") != "" {
			t.Errorf("%+v %v", p, a.Header)
		}
	}
	h.Do("GET", "/v1/agent/runs/none/replay.jsonl", "").Expect(t, 404, "NOT-FOUND")
	h.Do("GET", path, "", edgetest.TenantHeader, "other").Expect(t, 404, "NOT-FOUND")
	h.Do("POST", path, "").Expect(t, 405, "METHOD-NOT-ALLOWED")
	h.Log.Expire(schema.RunKey{Tenant: "acme", Run: "run"}, 40)
	for _, query := range []string{"", "?after=10", "?after=10&through=20", "?through=60"} {
		a := h.Do("GET", path+query, "", "Accept-Encoding", "zstd")
		if p := a.Expect(t, 410, schema.CodeCursorExpired); p.FirstSeq < 31 || p.FirstSeq > 41 ||
			a.Header.Get("Content-Encoding") != "" || a.Header.Get("Last-Seq") != "" {
			t.Errorf("%s: %+v %v", query, p, a.Header)
		}
		if a := h.Do("HEAD", path+query, ""); a.Status != 410 {
			t.Errorf("HEAD %s: %d", query, a.Status)
		}
	}
	if got, _, err := exportRun(h, path+"?after=41", "gzip"); err != nil || bytes.Count(got, []byte("\n")) != 59 {
		t.Errorf("%v, %d bytes", err, len(got))
	}
	h.Log.Down.Store(true)
	h.Do("GET", path, "").Expect(t, 503, "UNAVAILABLE")
}

// breaking is a history that fails behind some packs.
type breaking struct {
	*edgetest.FaultyLog
	packs atomic.Int64 // that are given before the fault; negative: no fault
	fault func(ctx context.Context) error
}

func (b *breaking) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	return func(yield func(schema.Pack, error) bool) {
		left := b.packs.Load()
		for p, err := range b.FaultyLog.Packs(ctx, key, after, through) {
			if left == 0 {
				yield(schema.Pack{}, b.fault(ctx))
				return
			}
			if left--; !yield(p, err) {
				return
			}
		}
	}
}

// TestExportBreaks: whatever goes wrong behind the header breaks the body off, in every coding, so
// that nobody takes a part for the whole.
func TestExportBreaks(t *testing.T) {
	var b breaking
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.LogTimeout = 300 * time.Millisecond
		hub, err := fanout.New(fanout.Config{Stream: &b, Tail: &b, CacheBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		c.Hub = hub
	})
	b.FaultyLog = h.Log
	b.packs.Store(-1)
	lines := schematest.Lines(h.Fill("run", schematest.Generate(4000, 5), 20))
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, fault := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errors.New("disk on fire") }, "is damaged": func(context.Context) error { return schema.ErrBadPack }, "is silent": silent,
	} {
		b.fault = fault
		for _, coding := range []string{"identity", "gzip", "zstd"} {
			b.packs.Store(100)
			got, resp, err := exportRun(h, "/v1/agent/runs/run/replay.jsonl", coding)
			if resp.StatusCode != 200 || err == nil || len(got) > 0 && !strings.HasPrefix(joined(lines), string(got)) {
				t.Errorf("history %s, %s: %d, %v, %d bytes", name, coding, resp.StatusCode, err, len(got))
			}
			b.packs.Store(0)
			if a := h.Do("GET", "/v1/agent/runs/run/replay.jsonl", ""); a.Status < 500 {
				t.Errorf("history %s from the start: %d", name, a.Status)
			}
			b.packs.Store(-1)
			if got, _, err := exportRun(h, "/v1/agent/runs/run/replay.jsonl", coding); err != nil ||
				string(got) != joined(lines) {
				t.Errorf("afterwards, %s: %v, %d bytes", coding, err, len(got))
			}
		}
	}
}

// TestExportToASlowClient: who does not read is cut within the write time-out, whatever the protocol.
func TestExportToASlowClient(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.WriteTimeout = 300 * time.Millisecond })
	for range 40 {
		h.Do("POST", "/v1/agent/runs/fat/events", `{"type":"custom.x","payload":{"text":"`+strings.Repeat("x", 400<<10)+`"}}`)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	two := &http.Transport{Protocols: &protocols}
	defer two.CloseIdleConnections()
	cut := 0
	for name, client := range map[string]*http.Client{"HTTP/1.1": h.Client, "HTTP/2": {Transport: two}} {
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if tcp, ok := i.Conn.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(16 << 10)
			}
		}}
		req := h.Request("GET", "/v1/agent/runs/fat/replay.jsonl", "", "Accept-Encoding", "identity")
		resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		edgetest.Eventually(t, name+": the slow client is cut",
			func() bool { return strings.Count(h.Logs.String(), `"reason":"slow client"`) > cut })
		cut++
		if n, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Errorf("%s: %d bytes and a clean end", name, n)
		}
		resp.Body.Close()
	}
}

// TestExportAtShutdown: a drain breaks exports off as it breaks streams off.
func TestExportAtShutdown(t *testing.T) {
	h := edgetest.NewHouse(t)
	for range 40 {
		h.Do("POST", "/v1/agent/runs/fat/events", `{"type":"custom.x","payload":{"text":"`+strings.Repeat("x", 400<<10)+`"}}`)
	}
	resp, err := h.Client.Do(h.Request("GET", "/v1/agent/runs/fat/replay.jsonl", "", "Accept-Encoding", "identity"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.Stop() }()
	edgetest.Eventually(t, "the drain has begun", func() bool { return isDraining(h) })
	time.Sleep(5 * transport.Notice) // sockets do not hold the rest, so it waits until its turn to end has come
	if n, err := io.Copy(io.Discard, r); err == nil {
		t.Errorf("%d bytes and a clean end", n)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// isDraining reports whether no new connection is taken.
func isDraining(h *edgetest.House) bool {
	c, err := net.DialTimeout("tcp", h.Addr, time.Second)
	if err == nil {
		c.Close()
	}
	return err != nil
}

// heldUp is a history that waits before each pack.
type heldUp struct {
	*edgetest.FaultyLog
	wait func()
}

func (l *heldUp) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range l.FaultyLog.Packs(ctx, key, after, through) {
			if l.wait(); ctx.Err() != nil || !yield(p, err) {
				return
			}
		}
	}
}

// TestExportIsChecked: the credential of an export is checked again like that of a stream. The export goes on while it
// holds, and breaks off when it is taken back.
func TestExportIsChecked(t *testing.T) {
	var checked, waits atomic.Int64
	var revoked atomic.Bool
	l := heldUp{wait: func() {
		if waits.Add(1)%100 == 0 {
			for until := checked.Load() + 3; checked.Load() < until; {
				time.Sleep(time.Millisecond)
			}
		}
	}}
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		hub, err := fanout.New(fanout.Config{Stream: &l, Tail: &l, CacheBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		c.Hub, c.Recheck = hub, time.Millisecond
		c.Still = func(who auth.Caller) error {
			if checked.Add(1); who.Tenant != "acme" || revoked.Load() {
				return auth.ErrUnauthorized
			}
			return nil
		}
	})
	l.FaultyLog = h.Log
	lines := schematest.Lines(h.Fill("run", schematest.Generate(4000, 5), 20))
	if got, _, err := exportRun(h, "/v1/agent/runs/run/replay.jsonl", "identity"); err != nil ||
		string(got) != joined(lines) {
		t.Errorf("a credential that holds: %v, %d bytes", err, len(got))
	}
	revoked.Store(true)
	if got, _, err := exportRun(h, "/v1/agent/runs/run/replay.jsonl", "identity"); err == nil &&
		string(got) == joined(lines) {
		t.Error("a credential that was taken back is served to the end")
	}
}
