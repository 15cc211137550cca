package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/schema"
)

const publishPath = "/v1/agent/events"

// receipt is a line of an answer.
type receipt struct {
	Line     int        `json:"line"`
	Run      string     `json:"run_id"`
	First    schema.Seq `json:"first_seq"`
	Last     schema.Seq `json:"last_seq"`
	Root     string     `json:"root_run_id"`
	Replayed bool       `json:"replayed"`
	Error    *problem   `json:"error"`
}

func (r receipt) String() string {
	if r.Error != nil {
		return fmt.Sprintf("%d %s: %s", r.Line, r.Run, r.Error.Code)
	}
	text := fmt.Sprintf("%d %s: %d-%d", r.Line, r.Run, r.First, r.Last)
	if r.Replayed {
		text += " again"
	}
	if r.Root != "" {
		text += " of " + r.Root
	}
	return text
}

func receiptsOf(t testing.TB, body string) (list []receipt) {
	t.Helper()
	for line := range strings.Lines(body) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var r receipt
		dec := json.NewDecoder(strings.NewReader(line))
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}

// texts are receipts in the order of their lines.
func texts(list []receipt) (out []string) {
	slices.SortStableFunc(list, func(a, b receipt) int { return a.Line - b.Line })
	for _, r := range list {
		out = append(out, r.String())
	}
	return out
}

func lineOf(run, more string) string {
	return fmt.Sprintf(`{"run_id":%q,"type":"text.delta","payload":{"text":"a"}%s}`, run, more)
}

// inLog returns what is stored of a run.
func (h *house) inLog(run string) (list []schema.Event) {
	h.t.Helper()
	for p, err := range h.log.Since(context.Background(), runOf(run), 0) {
		if err != nil {
			h.t.Fatal(err)
		}
		for line := range bytes.Lines(p.Body) {
			e, err := schema.DecodeLine(bytes.TrimSuffix(line, []byte{'\n'}))
			if err != nil {
				h.t.Fatal(err)
			}
			list = append(list, e)
		}
	}
	return list
}

// publisher is a client whose request body stays open.
type publisher struct {
	t    testing.TB
	w    *io.PipeWriter
	resp *http.Response
	r    *bufio.Reader
	stop context.CancelFunc
}

func (h *house) publish(client *http.Client, headers ...string) *publisher {
	h.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r, w := io.Pipe()
	req := h.request("POST", publishPath, "", headers...).WithContext(ctx)
	req.Body = r
	resp, err := client.Do(req)
	if err != nil {
		stop()
		h.t.Fatal(err)
	}
	p := &publisher{h.t, w, resp, bufio.NewReader(resp.Body), stop}
	h.t.Cleanup(func() { stop(); w.Close(); resp.Body.Close() })
	return p
}

func (p *publisher) send(lines ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p.w, strings.Join(lines, "\n")+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// next returns the next receipt.
func (p *publisher) next() receipt {
	p.t.Helper()
	for {
		line, err := p.r.ReadString('\n')
		if err != nil {
			p.t.Fatalf("%q, %v", line, err)
		}
		if list := receiptsOf(p.t, line); len(list) > 0 {
			return list[0]
		}
	}
}

// rest returns what comes until the end.
func (p *publisher) rest() []receipt {
	p.t.Helper()
	b, err := io.ReadAll(p.r)
	if err != nil {
		p.t.Fatalf("%q, %v", b, err)
	}
	return receiptsOf(p.t, string(b))
}

// Lines of several runs in one body: each run's in order, what is refused with its number, the others stand.
func TestPublishBatch(t *testing.T) {
	h := newHouse(t)
	body := strings.Join([]string{
		lineOf("a", ""), lineOf("b", ""), lineOf("a", ""), "", // 1 to 4
		`{"type":"text.delta","payload":{"text":"a"}}`, // 5
		lineOf("a.>", ""), // 6
		`{"run_id":"a","type":"text.deltas","payload":{}}`, // 7
		`nonsense`,      // 8
		lineOf("a", ""), // 9
		lineOf("b", `,"x":"`+strings.Repeat("x", schema.MaxEventBytes)+`"`), // 10
		lineOf("b", `,"seq":77`), // 11
		lineOf("b", "") + "\r",   // 12
		`{"run_id":"c","type":"plan.proposal","payload":{"steps":7}}`, // 13
		`{"run_id":"a","run_id":"a","type":"progress"}`,               // 14
	}, "\n")
	a := h.do("POST", publishPath, body, "Content-Type", "application/x-ndjson")
	if a.status != 200 || a.header.Get("Content-Type") != "application/x-ndjson" || a.header.Get("Content-Length") == "" {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	got := receiptsOf(t, a.body)
	want := []string{"3 a: 1-2", "5 : KAI-STREAM-PROTO-0001", "6 : BAD-ID", "7 a: KAI-STREAM-PROTO-0002", "8 : KAI-STREAM-PROTO-0001", "9 a: 3-3",
		"10 b: KAI-STREAM-PROTO-0001", "11 b: SEQ-MISMATCH", "12 b: 2-2", "13 c: KAI-STREAM-PROTO-0001", "14 a: KAI-STREAM-PROTO-0001", "2 b: 1-1"}
	slices.Sort(want)
	have := texts(got)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("%q\nwant %q", have, want)
	}
	for _, r := range got {
		if r.Line == 13 && r.Error.Field != "/payload" || r.Line == 5 && r.Error.Field != "/run_id" || r.Error != nil && (r.Error.Message == "" || r.Error.Line != 0) {
			t.Errorf("%+v", r.Error)
		}
	}
	if len(h.inLog("a")) != 3 || len(h.inLog("b")) != 2 || h.packs("a") != 1 {
		t.Errorf("%d events of a in %d packs, %d of b", len(h.inLog("a")), h.packs("a"), len(h.inLog("b")))
	}
	for name, tt := range map[string]struct {
		body   string
		status int
		header []string
	}{
		"empty":     {"\n\r\n", 400, nil},
		"media":     {body, 415, []string{"Content-Type", "image/png"}},
		"key":       {body, 400, []string{"Idempotency-Key", "a\tb"}},
		"too large": {strings.Repeat(" ", 9<<20), 413, nil},
		"too many":  {strings.Repeat("{}\n", 70_000), 413, nil},
	} {
		if a := h.do("POST", publishPath, tt.body, tt.header...); a.status != tt.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// A body under a key is stored once, whoever asks again.
func TestPublishBatchUnderAKey(t *testing.T) {
	h := newHouse(t)
	body := lineOf("a", "") + "\n" + lineOf("b", "") + "\n" + lineOf("a", "") + "\n"
	for _, want := range []string{"2 b: 1-1; 3 a: 1-2", "2 b: 1-1 again; 3 a: 1-2 again"} {
		got := texts(receiptsOf(t, h.do("POST", publishPath, body, "Idempotency-Key", "k").body))
		if s := strings.Join(got, "; "); s != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
	got := texts(receiptsOf(t, h.do("POST", publishPath, lineOf("b", "")+"\n"+body+`{"run_id":"c","type":"x"}`+"\n"+lineOf("c", ""), "Idempotency-Key", "k").body))
	if s := strings.Join(got, "; "); s != "3 b: KEY-REUSED; 4 a: 1-2 again; 5 c: KAI-STREAM-PROTO-0002" {
		t.Error(s)
	}
	if len(h.inLog("a")) != 2 || len(h.inLog("b")) != 1 || len(h.inLog("c")) != 0 {
		t.Error("what was not to be stored is")
	}
}

// One connection, over both versions of HTTP: receipts come while the body is open, and lines are repeatable by their key,
// by their id, and by their id at their place.
func TestPublishStream(t *testing.T) {
	for name, client := range map[string]*http.Client{"http1": {Transport: &http.Transport{}}, "http2": h2c()} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			defer client.CloseIdleConnections()
			p := h.publish(client, "Content-Type", "application/x-ndjson")
			for i := range 3 {
				p.send(lineOf("a", ""))
				if got := p.next().String(); got != fmt.Sprintf("%d a: %d-%d", i+1, i+1, i+1) {
					t.Fatal(got)
				}
			}
			for n, tt := range []struct{ line, want string }{
				{lineOf("a", `,"key":"k"`), "4 a: 4-4"},
				{lineOf("a", `,"key":"k"`), "5 a: 4-4 again"},
				{lineOf("a", `,"id":"mine"`), "6 a: 5-5"},
				{lineOf("a", `,"id":"mine"`), "7 a: 5-5 again"},
				{lineOf("a", `,"id":"placed","seq":6`), "8 a: 6-6"},
				{lineOf("a", `,"id":"placed","seq":6`), "9 a: 6-6 again"},
				{lineOf("a", `,"id":"other","seq":6`), "10 a: SEQ-MISMATCH"},
				{lineOf("a", `,"key":"`+strings.Repeat("k", 256)+`"`), "11 a: BAD-REQUEST"},
				{`{"run_id":"a","type":"child.spawn","payload":{"child_id":"kid"}}`, "12 a: 7-7"},
				{lineOf("kid", ""), "13 kid: 8-8 of a"},
				{lineOf("a", `,"payload":{}`), "14 a: KAI-STREAM-PROTO-0001"},
				{"", ""},
				{`{"run_id":"b"}`, "16 b: KAI-STREAM-PROTO-0002"},
			} {
				if p.send(tt.line); tt.want == "" {
					continue
				}
				if got := p.next().String(); got != tt.want {
					t.Errorf("%d: %s, want %s", n, got, tt.want)
				}
			}
			p.send(lineOf("a", ""), lineOf("b", ""))
			io.WriteString(p.w, lineOf("c", "")) // without a line feed
			p.w.Close()
			if got := strings.Join(texts(p.rest()), "; "); got != "17 a: 9-9; 18 b: 1-1; 19 c: 1-1" {
				t.Error(got)
			}
			for _, e := range h.inLog("a") {
				if strings.Contains(string(e.Extra), "key") {
					t.Errorf("the key is stored: %+v", e)
				}
			}
		})
	}
}

// What comes together for a run is one pack, and runs do not wait for each other.
func TestPublishTogether(t *testing.T) {
	h := newHouse(t)
	p := h.publish(http.DefaultClient)
	var lines []string
	for i := range 600 {
		lines = append(lines, lineOf(fmt.Sprint("run", i%3), ""))
	}
	p.send(lines...)
	p.w.Close()
	stored := map[string]schema.Seq{}
	for _, r := range p.rest() {
		if r.Error != nil || r.First != stored[r.Run]+1 {
			t.Fatalf("%v behind %d", r, stored[r.Run])
		}
		stored[r.Run] = r.Last
	}
	for run, last := range stored {
		if last != 200 || len(h.inLog(run)) != 200 || h.packs(run) > 50 {
			t.Errorf("%s: %d stored, %d packs", run, last, h.packs(run))
		}
	}
	if len(stored) != 3 {
		t.Errorf("%v", stored)
	}
}

// Who may not write, may not publish; and a credential for one run alone opens no such request.
func TestPublishNeedsScope(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			return auth.Caller{Tenant: "acme", Scopes: auth.ScopeRead | auth.ScopeCommand}, nil
		}
	})
	if a := h.do("POST", publishPath, lineOf("a", "")); a.status != 403 {
		t.Errorf("%d %s", a.status, a.body)
	}
	h = newHouse(t, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			return auth.Caller{Tenant: "acme", Run: "a", Scopes: auth.ScopeAll}, nil
		}
	})
	if a := h.do("POST", publishPath, lineOf("a", "")); a.status != 404 || len(h.inLog("a")) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A stream that sends no lines is told once and closed; what it has sent before stands.
func TestPublishGarbage(t *testing.T) {
	for name, garbage := range map[string]string{
		"text": "hello\nhello\nhello\n", "binary": "\x00\x01\xff\n\x00\n", "array": "[]\n", "endless": strings.Repeat("x", 9<<20),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			p := h.publish(http.DefaultClient)
			p.send(lineOf("a", ""))
			go func() { io.WriteString(p.w, garbage); io.WriteString(p.w, lineOf("a", "")+"\n") }() // the rest may be in nobody's way
			got := strings.Join(texts(p.rest()), "; ")
			if got != "1 a: 1-1; 2 : KAI-STREAM-PROTO-0001" || len(h.inLog("a")) != 1 {
				t.Errorf("%s, %d stored", got, len(h.inLog("a")))
			}
		})
	}
}

// A line that is too large is refused with its number, and the stream goes on.
func TestPublishTooLarge(t *testing.T) {
	h := newHouse(t)
	p := h.publish(http.DefaultClient)
	p.send(lineOf("a", ""), lineOf("a", `,"x":"`+strings.Repeat("x", 2<<20)+`"`), lineOf("a", ""))
	p.w.Close()
	if got := strings.Join(texts(p.rest()), "; "); got != "1 a: 1-1; 2 : KAI-STREAM-PROTO-0001; 3 a: 2-2" && got != "2 : KAI-STREAM-PROTO-0001; 3 a: 1-2" {
		t.Error(got)
	}
}

// Limits of the tenant hold for each event: a stream waits, a body's lines are refused from the first on that is too many.
func TestPublishLimits(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.IngestLimit = edge.IngestLimit{Events: 200, Requests: 1} })
	body := strings.Repeat(lineOf("a", "")+"\n", 300)
	list := receiptsOf(t, h.do("POST", publishPath, body).body)
	ok, refused := 0, 0
	for _, r := range list {
		switch {
		case r.Error == nil:
			ok += int(r.Last-r.First) + 1
		case r.Error.Code == "RATE-LIMITED":
			refused++
		}
	}
	if ok+refused != 300 || ok < 200 || refused == 0 || len(h.inLog("a")) != ok {
		t.Errorf("%d stored, %d refused, %d there", ok, refused, len(h.inLog("a")))
	}
	begun := time.Now()
	p := h.publish(http.DefaultClient)
	go func() { p.send(strings.TrimSuffix(body, "\n")); p.w.Close() }()
	ok = 0
	for _, r := range p.rest() {
		if r.Error != nil {
			t.Fatal(r)
		}
		ok += int(r.Last-r.First) + 1
	}
	if took := time.Since(begun); ok != 300 || took < time.Second {
		t.Errorf("%d stored in %v", ok, took)
	}
}

// After trouble with a run nothing overtakes: its later lines are refused too, and other runs go on.
func TestPublishTrouble(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.LogTimeout = 200 * time.Millisecond })
	p := h.publish(http.DefaultClient)
	p.send(lineOf("a", ""))
	p.next()
	h.log.down.Store(true)
	p.send(lineOf("a", ""))
	if r := p.next(); r.Line != 2 || r.Error == nil || r.Error.Code != "UNAVAILABLE" {
		t.Fatal(r)
	}
	h.log.down.Store(false)
	p.send(lineOf("a", ""), lineOf("b", ""))
	p.w.Close()
	if got := strings.Join(texts(p.rest()), "; "); got != "3 a: UNAVAILABLE; 4 b: 1-1" || len(h.inLog("a")) != 1 {
		t.Errorf("%s, %d stored", got, len(h.inLog("a")))
	}
}

// A node that goes away answers what it has read, and says why it ends.
func TestPublishDrain(t *testing.T) {
	h := newHouse(t)
	p := h.publish(&http.Client{Transport: &http.Transport{}})
	p.send(lineOf("a", ""))
	if got := p.next().String(); got != "1 a: 1-1" {
		t.Fatal(got)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
	if r := p.rest(); len(r) != 1 || r[0].Line != 0 || r[0].Error == nil || r[0].Error.Code != "SHUTTING-DOWN" {
		t.Errorf("%v", r)
	}
	wg.Wait()
}

// A client that never reads its receipts is cut within the write time-out, and what was read from it before is stored.
func TestPublishNeverReads(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.WriteTimeout, c.SendBuffer = 300*time.Millisecond, 4<<10 })
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", publishPath)
	var b []byte
	for i := range 400 { // each is refused, with more words than it has itself
		b = append(b, fmt.Sprintf(`{"run_id":"r%d","type":"no.such.type"}`+"\n", i)...)
	}
	b = append(b, lineOf("a", "")+"\n"...)
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b)
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
		if _, err = conn.Write(chunk); err != nil {
			break
		}
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("it is not cut")
	}
	eventually(t, "the stream is over", func() bool { return strings.Contains(h.logs.String(), `"reason":"`) })
	if len(h.inLog("a")) == 0 {
		t.Error("nothing was stored")
	}
}
