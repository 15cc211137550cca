package rest_test

import (
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
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// receipt is a line of an answer.
type receipt struct {
	Line     int               `json:"line"`
	Run      string            `json:"run_id"`
	First    schema.Seq        `json:"first_seq"`
	Last     schema.Seq        `json:"last_seq"`
	Root     string            `json:"root_run_id"`
	Replayed bool              `json:"replayed"`
	Error    *edgetest.Problem `json:"error"`
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

// storedEvents returns what is stored of a run.
func storedEvents(h *edgetest.House, run string) (list []schema.Event) {
	h.T.Helper()
	for p, err := range h.Log.Since(context.Background(), edgetest.RunOf(run), 0) {
		if err != nil {
			h.T.Fatal(err)
		}
		for line := range bytes.Lines(p.Body) {
			e, err := schema.DecodeLine(bytes.TrimSuffix(line, []byte{'\n'}))
			if err != nil {
				h.T.Fatal(err)
			}
			list = append(list, e)
		}
	}
	return list
}

func sendLines(p *edgetest.Publisher, lines ...string) {
	p.T.Helper()
	if _, err := io.WriteString(p.W, strings.Join(lines, "\n")+"\n"); err != nil {
		p.T.Fatal(err)
	}
}

// nextReceipt returns the next receipt.
func nextReceipt(p *edgetest.Publisher) receipt {
	p.T.Helper()
	for {
		line, err := p.R.ReadString('\n')
		if err != nil {
			p.T.Fatalf("%q, %v", line, err)
		}
		if list := receiptsOf(p.T, line); len(list) > 0 {
			return list[0]
		}
	}
}

// restOfReceipts returns what comes until the end.
func restOfReceipts(p *edgetest.Publisher) []receipt {
	p.T.Helper()
	b, err := io.ReadAll(p.R)
	if err != nil {
		p.T.Fatalf("%q, %v", b, err)
	}
	return receiptsOf(p.T, string(b))
}

// Lines of several runs in one body: each run's in order, what is refused with its number, the others stand.
func TestPublishBatch(t *testing.T) {
	h := edgetest.NewHouse(t)
	body := strings.Join([]string{
		edgetest.LineOf("a", ""), edgetest.LineOf("b", ""), edgetest.LineOf("a", ""), "", // 1 to 4
		`{"type":"text.delta","payload":{"text":"a"}}`,     // 5
		edgetest.LineOf("a.>", ""),                         // 6
		`{"run_id":"a","type":"text.deltas","payload":{}}`, // 7
		`nonsense`,               // 8
		edgetest.LineOf("a", ""), // 9
		edgetest.LineOf("b", `,"x":"`+strings.Repeat("x", schema.MaxEventBytes)+`"`), // 10
		edgetest.LineOf("b", `,"seq":77`),                                            // 11
		edgetest.LineOf("b", "") + "\r",                                              // 12
		`{"run_id":"c","type":"plan.proposal","payload":{"steps":7}}`,                // 13
		`{"run_id":"a","run_id":"a","type":"progress"}`,                              // 14
	}, "\n")
	a := h.Do("POST", edgetest.PublishPath, body, "Content-Type", "application/x-ndjson")
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/x-ndjson" || a.Header.Get("Content-Length") == "" {
		t.Fatalf("%d %v %s", a.Status, a.Header, a.Body)
	}
	got := receiptsOf(t, a.Body)
	want := []string{"3 a: 1-2", "5 : KAI-STREAM-PROTO-0001", "6 : BAD-ID", "7 a: KAI-STREAM-PROTO-0002",
		"8 : KAI-STREAM-PROTO-0001", "9 a: 3-3",
		"10 b: KAI-STREAM-PROTO-0001", "11 b: SEQ-MISMATCH", "12 b: 2-2", "13 c: KAI-STREAM-PROTO-0001",
		"14 a: KAI-STREAM-PROTO-0001", "2 b: 1-1"}
	slices.Sort(want)
	have := texts(got)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("%q\nwant %q", have, want)
	}
	for _, r := range got {
		if r.Line == 13 && r.Error.Field != "/payload" || r.Line == 5 && r.Error.Field != "/run_id" || r.Error != nil &&
			(r.Error.Message == "" || r.Error.Line != 0) {
			t.Errorf("%+v", r.Error)
		}
	}
	if len(storedEvents(h, "a")) != 3 || len(storedEvents(h, "b")) != 2 || packsOf(h, "a") != 1 {
		t.Errorf("%d events of a in %d packs, %d of b", len(storedEvents(h, "a")), packsOf(h, "a"), len(storedEvents(h, "b")))
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
		if a := h.Do("POST", edgetest.PublishPath, tt.body, tt.header...); a.Status != tt.status {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
}

// A body under a key is stored once, whoever asks again.
func TestPublishBatchUnderAKey(t *testing.T) {
	h := edgetest.NewHouse(t)
	body := edgetest.LineOf("a", "") + "\n" + edgetest.LineOf("b", "") + "\n" + edgetest.LineOf("a", "") + "\n"
	for _, want := range []string{"2 b: 1-1; 3 a: 1-2", "2 b: 1-1 again; 3 a: 1-2 again"} {
		got := texts(receiptsOf(t, h.Do("POST", edgetest.PublishPath, body, "Idempotency-Key", "k").Body))
		if s := strings.Join(got, "; "); s != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
	got := texts(receiptsOf(t, h.Do("POST", edgetest.PublishPath,
		edgetest.LineOf("b", "")+"\n"+body+`{"run_id":"c","type":"x"}`+"\n"+edgetest.LineOf("c", ""), "Idempotency-Key",
		"k").Body))
	if s := strings.Join(got, "; "); s != "3 b: KEY-REUSED; 4 a: 1-2 again; 5 c: KAI-STREAM-PROTO-0002" {
		t.Error(s)
	}
	if len(storedEvents(h, "a")) != 2 || len(storedEvents(h, "b")) != 1 || len(storedEvents(h, "c")) != 0 {
		t.Error("what was not to be stored is")
	}
}

// One connection, over both versions of HTTP: receipts come while the body is open, and lines are repeatable by their
// key, by their id, and by their id at their place.
func TestPublishStream(t *testing.T) {
	for name, client := range map[string]*http.Client{"http1": {Transport: &http.Transport{}}, "http2": edgetest.H2C()} {
		t.Run(name, func(t *testing.T) {
			h := edgetest.NewHouse(t)
			defer client.CloseIdleConnections()
			p := h.Publish(client, "Content-Type", "application/x-ndjson")
			for i := range 3 {
				sendLines(p, edgetest.LineOf("a", ""))
				if got := nextReceipt(p).String(); got != fmt.Sprintf("%d a: %d-%d", i+1, i+1, i+1) {
					t.Fatal(got)
				}
			}
			for n, tt := range []struct{ line, want string }{
				{edgetest.LineOf("a", `,"key":"k"`), "4 a: 4-4"},
				{edgetest.LineOf("a", `,"key":"k"`), "5 a: 4-4 again"},
				{edgetest.LineOf("a", `,"id":"mine"`), "6 a: 5-5"},
				{edgetest.LineOf("a", `,"id":"mine"`), "7 a: 5-5 again"},
				{edgetest.LineOf("a", `,"id":"placed","seq":6`), "8 a: 6-6"},
				{edgetest.LineOf("a", `,"id":"placed","seq":6`), "9 a: 6-6 again"},
				{edgetest.LineOf("a", `,"id":"other","seq":6`), "10 a: SEQ-MISMATCH"},
				{edgetest.LineOf("a", `,"key":"`+strings.Repeat("k", 256)+`"`), "11 a: BAD-REQUEST"},
				{`{"run_id":"a","type":"child.spawn","payload":{"child_id":"kid"}}`, "12 a: 7-7"},
				{edgetest.LineOf("kid", ""), "13 kid: 8-8 of a"},
				{edgetest.LineOf("a", `,"payload":{}`), "14 a: KAI-STREAM-PROTO-0001"},
				{"", ""},
				{`{"run_id":"b"}`, "16 b: KAI-STREAM-PROTO-0002"},
			} {
				if sendLines(p, tt.line); tt.want == "" {
					continue
				}
				if got := nextReceipt(p).String(); got != tt.want {
					t.Errorf("%d: %s, want %s", n, got, tt.want)
				}
			}
			sendLines(p, edgetest.LineOf("a", ""), edgetest.LineOf("b", ""))
			io.WriteString(p.W, edgetest.LineOf("c", "")) // without a line feed
			p.W.Close()
			if got := strings.Join(texts(restOfReceipts(p)), "; "); got != "17 a: 9-9; 18 b: 1-1; 19 c: 1-1" {
				t.Error(got)
			}
			for _, e := range storedEvents(h, "a") {
				if strings.Contains(string(e.Extra), "key") {
					t.Errorf("the key is stored: %+v", e)
				}
			}
		})
	}
}

// What comes together for a run is one pack, and runs do not wait for each other.
func TestPublishTogether(t *testing.T) {
	h := edgetest.NewHouse(t)
	p := h.Publish(http.DefaultClient)
	var lines []string
	for i := range 600 {
		lines = append(lines, edgetest.LineOf(fmt.Sprint("run", i%3), ""))
	}
	sendLines(p, lines...)
	p.W.Close()
	stored := map[string]schema.Seq{}
	for _, r := range restOfReceipts(p) {
		if r.Error != nil || r.First != stored[r.Run]+1 {
			t.Fatalf("%v behind %d", r, stored[r.Run])
		}
		stored[r.Run] = r.Last
	}
	for run, last := range stored {
		if last != 200 || len(storedEvents(h, run)) != 200 || packsOf(h, run) > 50 {
			t.Errorf("%s: %d stored, %d packs", run, last, packsOf(h, run))
		}
	}
	if len(stored) != 3 {
		t.Errorf("%v", stored)
	}
}

// Who may not write, may not publish; and a credential for one run alone opens no such request.
func TestPublishNeedsScope(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			return auth.Caller{Tenant: "acme", Scopes: auth.ScopeRead | auth.ScopeCommand}, nil
		}
	})
	if a := h.Do("POST", edgetest.PublishPath, edgetest.LineOf("a", "")); a.Status != 403 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	h = edgetest.NewHouse(t, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			return auth.Caller{Tenant: "acme", Run: "a", Scopes: auth.ScopeAll}, nil
		}
	})
	if a := h.Do("POST", edgetest.PublishPath, edgetest.LineOf("a", "")); a.Status != 404 ||
		len(storedEvents(h, "a")) != 0 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A stream that sends no lines is told once and closed; what it has sent before stands.
func TestPublishGarbage(t *testing.T) {
	for name, garbage := range map[string]string{
		"text": "hello\nhello\nhello\n", "binary": "\x00\x01\xff\n\x00\n", "array": "[]\n",
		"endless": strings.Repeat("x", 9<<20),
	} {
		t.Run(name, func(t *testing.T) {
			h := edgetest.NewHouse(t)
			p := h.Publish(http.DefaultClient)
			sendLines(p, edgetest.LineOf("a", ""))
			// the rest may be in nobody's way
			go func() { io.WriteString(p.W, garbage); io.WriteString(p.W, edgetest.LineOf("a", "")+"\n") }()
			got := strings.Join(texts(restOfReceipts(p)), "; ")
			if got != "1 a: 1-1; 2 : KAI-STREAM-PROTO-0001" || len(storedEvents(h, "a")) != 1 {
				t.Errorf("%s, %d stored", got, len(storedEvents(h, "a")))
			}
		})
	}
}

// A line that is too large is refused with its number, and the stream goes on.
func TestPublishTooLarge(t *testing.T) {
	h := edgetest.NewHouse(t)
	p := h.Publish(http.DefaultClient)
	sendLines(p, edgetest.LineOf("a", ""), edgetest.LineOf("a", `,"x":"`+strings.Repeat("x", 2<<20)+`"`),
		edgetest.LineOf("a", ""))
	p.W.Close()
	if got := strings.Join(texts(restOfReceipts(p)), "; "); got != "1 a: 1-1; 2 : KAI-STREAM-PROTO-0001; 3 a: 2-2" &&
		got != "2 : KAI-STREAM-PROTO-0001; 3 a: 1-2" {
		t.Error(got)
	}
}

// Limits of the tenant hold for each event: a stream waits, a body's lines are refused from the first on that is too
// many.
func TestPublishLimits(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.IngestLimit = edge.IngestLimit{Events: 200, Requests: 1} })
	body := strings.Repeat(edgetest.LineOf("a", "")+"\n", 300)
	list := receiptsOf(t, h.Do("POST", edgetest.PublishPath, body).Body)
	ok, refused := 0, 0
	for _, r := range list {
		switch {
		case r.Error == nil:
			ok += int(r.Last-r.First) + 1
		case r.Error.Code == "RATE-LIMITED":
			refused++
		}
	}
	if ok+refused != 300 || ok < 200 || refused == 0 || len(storedEvents(h, "a")) != ok {
		t.Errorf("%d stored, %d refused, %d there", ok, refused, len(storedEvents(h, "a")))
	}
	begun := time.Now()
	p := h.Publish(http.DefaultClient)
	go func() { sendLines(p, strings.TrimSuffix(body, "\n")); p.W.Close() }()
	ok = 0
	for _, r := range restOfReceipts(p) {
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
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.LogTimeout = 200 * time.Millisecond })
	p := h.Publish(http.DefaultClient)
	sendLines(p, edgetest.LineOf("a", ""))
	nextReceipt(p)
	h.Log.Down.Store(true)
	sendLines(p, edgetest.LineOf("a", ""))
	if r := nextReceipt(p); r.Line != 2 || r.Error == nil || r.Error.Code != "UNAVAILABLE" {
		t.Fatal(r)
	}
	h.Log.Down.Store(false)
	sendLines(p, edgetest.LineOf("a", ""), edgetest.LineOf("b", ""))
	p.W.Close()
	if got := strings.Join(texts(restOfReceipts(p)), "; "); got != "3 a: UNAVAILABLE; 4 b: 1-1" ||
		len(storedEvents(h, "a")) != 1 {
		t.Errorf("%s, %d stored", got, len(storedEvents(h, "a")))
	}
}

// A node that goes away answers what it has read, and says why it ends.
func TestPublishDrain(t *testing.T) {
	h := edgetest.NewHouse(t)
	p := h.Publish(&http.Client{Transport: &http.Transport{}})
	sendLines(p, edgetest.LineOf("a", ""))
	if got := nextReceipt(p).String(); got != "1 a: 1-1" {
		t.Fatal(got)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	if r := restOfReceipts(p); len(r) != 1 || r[0].Line != 0 || r[0].Error == nil || r[0].Error.Code != "SHUTTING-DOWN" {
		t.Errorf("%v", r)
	}
	wg.Wait()
}

// A client that never reads its receipts is cut within the write time-out, and what was read from it before is stored.
func TestPublishNeverReads(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.WriteTimeout, c.SendBuffer = 300*time.Millisecond, 4<<10 })
	conn, err := net.Dial("tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", edgetest.PublishPath)
	var b []byte
	for i := range 400 { // each is refused, with more words than it has itself
		b = append(b, fmt.Sprintf(`{"run_id":"r%d","type":"no.such.type"}`+"\n", i)...)
	}
	b = append(b, edgetest.LineOf("a", "")+"\n"...)
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
	edgetest.Eventually(t, "the stream is over", func() bool { return strings.Contains(h.Logs.String(), `"reason":"`) })
	if len(storedEvents(h, "a")) == 0 {
		t.Error("nothing was stored")
	}
}
