package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/internal/testkit"
	"agentstream/schema"
)

// resident is the memory of a process, in MiB.
func (p *proc) resident() float64 { return p.memoryOf("VmRSS:") }

// peak is the most memory that a process has had, in MiB.
func (p *proc) peak() float64 { return p.memoryOf("VmHWM:") }

// memoryOf returns a figure of /proc/PID/status, in MiB.
func (p *proc) memoryOf(name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return float64(kib) / 1024
}

const lateDeltas = 100_000

// TestLateJoin: a run of 100,000 deltas, joined by a client that has nothing. In default detail it gets
// at most one event in a hundred and the same text; a snapshot takes at most 2 s of CPU time from an edge that
// has never seen the run, and 200 ms from one that has.
func TestLateJoin(t *testing.T) {
	beside(t)
	k := testkit.NATS(t)
	url := k.Server.ClientURL()
	want := publishLong(t, url)
	warm := newProc(t, "edge", "--nats", url)
	warm.start()
	before := warm.resident()
	run := warm.url("/v1/agent/runs/" + resumeRun)
	began := time.Now()
	shown, text := readShaped(t, run+"/stream")
	took := time.Since(began)
	t.Logf("default detail: %d events for %d in %v, edge grew from %.0f to %.0f MiB", shown, lateDeltas+5,
		took.Round(time.Millisecond), before, warm.resident())
	if shown > lateDeltas/100 {
		t.Errorf("%d events are more than one in a hundred", shown)
	}
	if text != want {
		t.Errorf("text of %d bytes, want %d", len(text), len(want))
	}
	cold := newProc(t, "edge", "--nats", url)
	cold.start()
	used := cpuSeconds(cold.cmd.Process.Pid, false)
	first, fromCold := snapshotText(t, cold.url("/v1/agent/runs/"+resumeRun+"/snapshot"))
	afterFirst := cpuSeconds(cold.cmd.Process.Pid, false)
	again, _ := snapshotText(t, cold.url("/v1/agent/runs/"+resumeRun+"/snapshot"))
	afterAgain := cpuSeconds(cold.cmd.Process.Pid, false)
	t.Logf("snapshot: %v from a cold edge, %v from a warm one; %.0f MiB", first.Round(time.Millisecond),
		again.Round(time.Millisecond), cold.resident())
	if fromCold != want {
		t.Errorf("snapshot has a text of %d bytes, want %d", len(fromCold), len(want))
	}
	if afterFirst-used > 2 || afterAgain-afterFirst > 0.2 {
		t.Errorf("snapshots took %.2f s and %.2f s of CPU time", afterFirst-used, afterAgain-afterFirst)
	}
	shown, text = readShaped(t, cold.url("/v1/agent/runs/"+resumeRun+"/stream?snapshot=true"))
	if shown != 1 || text != "" {
		t.Errorf("?snapshot=true of an ended run: %d events", shown)
	}
}

// publishLong stores a run of 100,000 text deltas in 20 blocks and gives their text.
func publishLong(t *testing.T, url string) string {
	t.Helper()
	pub, closeAll := publisher(t, url, false)
	defer closeAll()
	var text strings.Builder
	say := func(typ, payload string) {
		if _, err := pub.Publish(t.Context(), schema.Event{Type: typ, Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	say(schema.TypeRunLifecycle, `{"state":"running"}`)
	say(schema.TypeMessageStart, `{"message_id":"m1","role":"assistant"}`)
	for i := range lateDeltas {
		word := fmt.Sprintf("w%d ", i)
		text.WriteString(word)
		say(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q,"index":%d}`, word, i/5000))
	}
	say(schema.TypeMessageEnd, `{"message_id":"m1","usage":{"output_tokens":100000}}`)
	say(schema.TypeStepBoundary, `{"step_index":0,"step_kind":"text-only"}`)
	say(schema.TypeRunLifecycle, `{"state":"done"}`)
	if err := pub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// readShaped reads a stream to its end: how many events, and the text of text.delta.
func readShaped(t *testing.T, url string) (events int, text string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var said strings.Builder
	last := schema.Seq(0)
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return events, said.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		e, err := schema.DecodeLine([]byte(strings.TrimSuffix(data, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		if e.First() != last+1 {
			t.Fatalf("behind %d comes %d", last, e.First())
		}
		last = e.Seq
		events++
		if e.Type == schema.TypeTextDelta {
			var p struct{ Text string }
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				t.Fatal(err)
			}
			said.WriteString(p.Text)
		}
	}
}

func snapshotText(t *testing.T, url string) (time.Duration, string) {
	t.Helper()
	began := time.Now()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v", resp.StatusCode, err)
	}
	var s struct {
		Messages []struct {
			Blocks []struct{ Text string }
		}
	}
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, m := range s.Messages {
		for _, b := range m.Blocks {
			text.WriteString(b.Text)
		}
	}
	return took, text.String()
}

// deaf is how many clients of each transport never read.
const deaf = 30

// TestClientsThatNeverRead: thirty clients of each transport that never read a byte, on one edge. Its
// memory stays bounded, they are cut by the table of ends, and those who do read notice nothing.
func TestClientsThatNeverRead(t *testing.T) {
	beside(t)
	k := testkit.NATS(t)
	// The keeper would let garbage lie, up to 64 MiB of it, which is not what is measured.
	p := newProc(t, "edge", "--nats", k.Server.ClientURL(), "--write-timeout", "8s", "--no-memory-keeper")
	p.start()
	pub, closeAll := publisher(t, k.Server.ClientURL(), false)
	defer closeAll()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	filler := strings.Repeat("x", 1000)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			kind := []string{schema.TypeReasoningDelta, schema.TypeTextDelta, schema.TypeProgress}[i%3]
			payload := fmt.Appendf(nil, `{"text":"%s"}`, filler)
			if kind == schema.TypeProgress {
				payload = fmt.Appendf(nil, `{"at":%d}`, time.Now().UnixNano())
			}
			if _, err := pub.Publish(context.WithoutCancel(ctx), schema.Event{Type: kind, Payload: payload}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer publishing.Wait()
	defer cancel()
	run := p.url("/v1/agent/runs/" + resumeRun)
	eventually(t, 10*time.Second, "the run is there", func() bool {
		r, err := http.Get(run)
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	alone := latencies(t, run, 4*time.Second)
	before := p.resident()
	conns := neverRead(t, p)
	most := before
	eventually(t, 20*time.Second, "all of them are served", func() bool { return streamsOpen(t, p) == 3*deaf })
	// Until their buffers are full they are watchers like any other.
	sent, full := 0, false
	eventually(t, 20*time.Second, "their buffers are full", func() bool {
		time.Sleep(300 * time.Millisecond) // a sample
		now := metric(t, p, `agentstream_sent_events_total{dialect="native"} `)
		full = sent > 0 && now-sent < 3*deaf
		sent = now
		return full
	})
	var crowded []time.Duration
	var watching sync.WaitGroup
	watching.Go(func() { crowded = latencies(t, run, 4*time.Second) })
	eventually(t, 30*time.Second, "they are cut", func() bool {
		time.Sleep(200 * time.Millisecond) // scraping is work for the edge, too
		most = max(most, p.resident())
		return streamsEnded(t, p, "slow client") >= 3*deaf
	})
	watching.Wait()
	for _, c := range conns {
		c.Close()
	}
	for _, tr := range []string{"sse", "ws", "grpc"} {
		t.Logf("%s: %d cut as slow clients", tr, endedBy(t, p, tr, "slow client"))
	}
	t.Logf("%d clients that never read: memory %.0f MiB before, %.0f MiB at most (%.0f KiB a client)", 3*deaf, before,
		most, (most-before)*1024/(3*deaf))
	t.Logf("watchers that read: p99 %v alone, %v beside them (%d and %d events)", p99(alone), p99(crowded), len(alone),
		len(crowded))
	if grown := most - before; grown > 3*deaf*0.5 {
		t.Errorf("memory grew by %.0f MiB", grown)
	}
}

// neverRead opens connections of every transport and reads nothing from them.
func neverRead(t *testing.T, p *proc) (conns []net.Conn) {
	t.Helper()
	open := func() net.Conn {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		return c
	}
	now := newest(t, p.url("/v1/agent/runs/"+resumeRun+"/stream"))
	get := "GET /v1/agent/runs/" + resumeRun + "/stream?after=" + now +
		" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + edgeToken + "\r\n"
	for range deaf {
		fmt.Fprint(open(), get+"\r\n")
		fmt.Fprint(open(), get+"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		if err := deafCall(open(), now); err != nil {
			t.Fatal(err)
		}
	}
	return conns
}

// deafCall begins a gRPC call on a connection: preface, settings with large windows, headers, message.
func deafCall(c net.Conn, after string) error {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	n, err := strconv.ParseUint(after, 10, 64)
	if err != nil {
		return err
	}
	request := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), resumeRun)
	request = protowire.AppendVarint(protowire.AppendTag(request, 2, protowire.VarintType), n)
	message := append([]byte{0, 0, 0, 0, byte(len(request))}, request...)
	err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	err = cmpErr(err, f.WriteWindowUpdate(0, 1<<30))
	err = cmpErr(err, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: callHeaders()}))
	err = cmpErr(err, f.WriteData(1, true, message))
	if err != nil {
		return err
	}
	_, err = c.Write(b.Bytes())
	return err
}

// callHeaders is the header block of the call.
func callHeaders() []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/agent.v1.AgentRun/Stream"}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + edgeToken},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // a buffer takes everything
	}
	return b.Bytes()
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// latencies watches in full detail for a while and gives how long each control event took from its
// publisher.
func latencies(t *testing.T, run string, d time.Duration) (took []time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return watchFor(ctx, t, run+"/stream", newest(t, run))
}

// watchFor gives, for the control events of a stream that carry "at", their age on arrival.
func watchFor(ctx context.Context, t *testing.T, url, after string) (took []time.Duration) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+sep(url)+"after="+after, nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	r := bufio.NewReaderSize(resp.Body, 256<<10)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return took
		}
		_, rest, ok := strings.Cut(line, `"at":`)
		if !ok {
			continue
		}
		at, err := strconv.ParseInt(rest[:strings.IndexAny(rest, ",}")], 10, 64)
		if err != nil {
			t.Error(err)
			return took
		}
		took = append(took, time.Since(time.Unix(0, at)))
	}
}

func sep(url string) string {
	if strings.Contains(url, "?") {
		return "&"
	}
	return "?"
}

// newest returns the run's newest seq, so that what is measured is live.
func newest(t *testing.T, url string) string {
	base, _, _ := strings.Cut(url, "/stream")
	resp, err := http.Get(base)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	var s struct {
		Last int64 `json:"last_seq"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Error(err)
	}
	return strconv.FormatInt(s.Last, 10)
}

func p99(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)*99/100]
}

// streamsEnded counts what an edge's metrics say of streams that ended for a reason.
func streamsEnded(t *testing.T, p *proc, reason string) (n int) {
	for _, tr := range []string{"sse", "ws", "grpc"} {
		n += endedBy(t, p, tr, reason)
	}
	return n
}

func endedBy(t *testing.T, p *proc, transport, reason string) int {
	t.Helper()
	return metric(t, p, fmt.Sprintf(`agentstream_streams_ended_total{dialect="native",reason=%q,transport=%q} `, reason,
		transport))
}

func streamsOpen(t *testing.T, p *proc) (n int) {
	for _, tr := range []string{"sse", "ws", "grpc"} {
		n += metric(t, p, fmt.Sprintf(`agentstream_streams_open{dialect="native",transport=%q} `, tr))
	}
	return n
}

// metric returns one line of an edge's metrics, 0 when it is not there.
func metric(t *testing.T, p *proc, name string) int {
	t.Helper()
	resp, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(body), name)
	if !ok {
		return 0
	}
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestControlEventsAreNotDelayed: eight children that speak and use tools, watched raw and shaped at the same time over
// sockets: each stream has the control events. The long form (make proofs) has the machine to itself, and holds the
// 99th percentiles to 5 ms from each other. Virtual time shows the difference to be none: edge
// TestT4TenDeltaEventsASecond.
func TestControlEventsAreNotDelayed(t *testing.T) {
	beside(t)
	k := testkit.NATS(t)
	p := newProc(t, "edge", "--nats", k.Server.ClientURL())
	p.start()
	pub, closeAll := publisher(t, k.Server.ClientURL(), true)
	defer closeAll()
	say := func(e schema.Event) {
		if _, err := pub.Publish(context.WithoutCancel(t.Context()), e); err != nil {
			t.Error(err)
		}
	}
	say(schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)})
	run := p.url("/v1/agent/runs/" + resumeRun + "/stream")
	eventually(t, 10*time.Second, "the run is there", func() bool {
		r, err := http.Head(run)
		return err == nil && r.StatusCode == http.StatusOK
	})
	tools := 60
	if proofs() {
		tools = 300
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var raw, shaped, bundled []time.Duration
	var wg sync.WaitGroup
	after := newest(t, run) // before the first tool speaks
	wg.Go(func() { raw = watchFor(ctx, t, run+"?detail=full", after) })
	wg.Go(func() { shaped = watchFor(ctx, t, run, after) })
	wg.Go(func() { bundled = watchFor(ctx, t, run+"?bundle=true", after) })
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for i := range 10 * tools {
		<-tick.C
		e := schema.Event{Type: schema.TypeTextDelta, ChildID: fmt.Sprintf("child%d", i%8),
			Payload: []byte(`{"text":"word "}`)}
		if i%10 == 0 {
			e.Type = []string{schema.TypeToolStart, schema.TypeToolEnd}[i/10%2]
			e.Payload = fmt.Appendf(nil, `{"call_id":"c%d","tool":"t","ok":true,"at":%d}`, i/20, time.Now().UnixNano())
		}
		say(e)
	}
	say(schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)})
	wg.Wait()
	t.Logf("p99 of tool events: raw %v, shaped %v, bundled %v (%d, %d, %d events)", p99(raw), p99(shaped), p99(bundled),
		len(raw), len(shaped), len(bundled))
	for name, d := range map[string][]time.Duration{"raw": raw, "shaped": shaped, "bundled": bundled} {
		if len(d) != tools || proofs() && p99(d)-p99(raw) > 5*time.Millisecond {
			t.Errorf("%s: %d events of %d, p99 %v against %v", name, len(d), tools, p99(d), p99(raw))
		}
	}
}
