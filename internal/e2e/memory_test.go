package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	encoding "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// besieged is dev under --memory, with callers of several tenants.
type besieged struct {
	*proc
	memory, parts int           // MiB, and by how much an attack is smaller than that of the long form
	lasts         time.Duration // of what holds on to all that it gets
	greedy        []string      // credentials of the attackers, whose tenants are several
	modest, share string        // of another tenant, of somebody with a link
	attack        sync.WaitGroup
}

// siegeRun is the run that the link shows.
const siegeRun = "run_siege"

// besiege starts a process. The short form has a third of the long one's attackers, and of its memory.
func besiege(t *testing.T) *besieged {
	t.Helper()
	b := &besieged{memory: 600, parts: 1, lasts: 70 * time.Second}
	if !long() {
		b.memory, b.parts, b.lasts = 200, 3, 6*time.Second
	}
	b.proc = newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--hmac-secret", hmacSecret,
		"--memory", fmt.Sprintf("%dMiB", b.memory))
	b.start()
	b.greedy = []string{devToken(t, "greedy"), devToken(t, "greedier"), devToken(t, "greediest")}
	b.modest = devToken(t, "modest")
	path := "/v1/agent/runs/" + siegeRun
	for _, token := range b.greedy {
		b.ask(token, "POST", path+"/events", `{"type":"run.lifecycle","payload":{"state":"running"}}`, http.StatusOK)
	}
	var made struct{ Share string }
	text := b.ask(b.greedy[0], "POST", path+"/shares", "", http.StatusOK, http.StatusCreated)
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Share == "" {
		t.Fatalf("no share: %v %s", err, text)
	}
	b.share = made.Share
	return b
}

// hold attacks with n attackers at a time, and reports what memory the process took at most. Another tenant writes and
// reads meanwhile, and is not refused.
func (b *besieged) hold(n int, attacker func(ctx context.Context, i int)) {
	b.t.Helper()
	idle := b.resident()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	end := time.Now().Add(b.lasts)
	for i := range n {
		b.attack.Go(func() { attacker(ctx, i) })
	}
	served := 0
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; served < 5 || time.Now().Before(end); <-tick.C {
		b.ask(b.modest, "POST", "/v1/agent/runs/run_modest/events", `{"type":"text.delta","payload":{"text":"a"}}`,
			http.StatusOK)
		b.ask(b.modest, "GET", "/v1/agent/runs/run_modest", "", http.StatusOK)
		served++
	}
	cancel()
	b.attack.Wait()
	most := b.peak()
	b.t.Logf("memory: %-50s %4.0f MiB idle, %4.0f MiB at most of %d; another tenant was served %d times",
		b.t.Name(), idle, most, b.memory, served)
	if bound := float64(b.memory) * 1.1; most > bound {
		b.t.Errorf("%.0f MiB, more than %.0f", most, bound)
	}
}

// ask asks with a credential, and holds the answer to a status.
func (b *besieged) ask(token, method, path, body string, want ...int) string {
	b.t.Helper()
	code, text := askAs(b.t, token, method, b.url(path), body)
	for _, w := range want {
		if code == w {
			return text
		}
	}
	b.t.Errorf("%s %s: %d %s", method, path, code, text)
	return text
}

// dial opens a connection that is closed with ctx, whose client reads nothing but what it is asked to.
func (b *besieged) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", b.addr)
	if err != nil {
		return nil, err
	}
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10) // else the system keeps more
	b.attack.Go(func() { <-ctx.Done(); c.Close() })
	return c, nil
}

// floods are streams over HTTP/2 that are held as long as the server lets them be, without a credential unless one is
// named.
var floods = map[string]struct {
	fields []string
	greedy bool
	end    bool
	long   bool // of the long form alone: in a third of the memory, the process itself takes a third of that
}{
	"reflection": {fields: rpcFields("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")},
	"health":     {fields: rpcFields("/grpc.health.v1.Health/Watch")},
	"no such":    {fields: rpcFields("/none.v1.None/Say"), long: true},
	"page":       {fields: []string{":method", "GET", ":path", "/console/"}, end: true, long: true},
	"watch": {fields: []string{":method", "GET", ":path", "/v1/agent/runs/" + siegeRun + "/stream"}, greedy: true,
		end: true, long: true},
	"body":    {fields: []string{":method", "POST", ":path", "/v1/agent/runs/" + siegeRun + "/events"}, greedy: true},
	"publish": {fields: rpcFields("/agent.v1.AgentIngest/Publish"), greedy: true},
}

func rpcFields(path string) []string {
	return []string{":method", "POST", ":path", path, "content-type", "application/grpc", "te", "trailers"}
}

// TestMemoryOfFloods: 60,000 streams over HTTP/2, of every kind, on fifteen connections whose windows are closed.
func TestMemoryOfFloods(t *testing.T) {
	beside(t)
	for name, kind := range floods {
		if kind.long && !long() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := besiege(t)
			b.lasts = min(b.lasts/2, 15*time.Second)
			b.hold(15, func(ctx context.Context, i int) {
				fields := append([]string{":scheme", "http", ":authority", b.addr}, kind.fields...)
				if kind.greedy {
					fields = append(fields, "authorization", "Bearer "+b.greedy[i%len(b.greedy)])
				}
				for left := 4000 / b.parts; left > 0 && ctx.Err() == nil; {
					left = b.flood(ctx, left, kind.end, fields)
				}
				<-ctx.Done()
			})
		})
	}
}

// flood opens streams on one connection until it is cut, and returns how many are left.
func (b *besieged) flood(ctx context.Context, left int, end bool, fields []string) int {
	c, err := b.dial(ctx)
	if err != nil {
		return left
	}
	fr := http2.NewFramer(c, bufio.NewReader(c))
	_, err = io.WriteString(c, http2.ClientPreface)
	err = cmpErr(err, fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	if err != nil {
		return left
	}
	var writing sync.Mutex
	b.attack.Go(func() {
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
				writing.Lock()
				_ = fr.WriteSettingsAck()
				writing.Unlock()
			}
		}
	})
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for id := uint32(1); left > 0; id += 2 {
		block.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a buffer takes everything
		}
		writing.Lock()
		err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
			EndStream: end})
		writing.Unlock()
		if err != nil {
			return left
		}
		left--
	}
	return 0
}

// sockets are the WebSockets of all protocols.
var sockets = []struct {
	name, path string
	greedy     bool // the link is not enough
}{
	{"native", "/v1/agent/runs/" + siegeRun + "/stream", false},
	{"native, publishing", "/v1/agent/events", true},
	{"langchain", "/threads/" + siegeRun + "/stream/events", false},
	{"langchain, below its prefix", "/langgraph/threads/" + siegeRun + "/stream/events", false},
	{"langchain, older", "/threads/" + siegeRun + "/stream", false},
	{"metis", "/metis/sessions/" + siegeRun + "/stream", false},
}

// upgrade opens a WebSocket, and does not look whether the server agrees.
func (b *besieged) upgrade(ctx context.Context, path, token string) (net.Conn, error) {
	c, err := b.dial(ctx)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path, b.addr, token)
	return c, err
}

// socketFrame is a frame of a client, masked with zeros.
func socketFrame(first byte, data string) []byte {
	b := []byte{first, 0x80 | byte(len(data))}
	switch n := len(data); {
	case n > 0xFFFF:
		b = encoding.BigEndian.AppendUint64([]byte{first, 0xFF}, uint64(n))
	case n > 125:
		b = encoding.BigEndian.AppendUint16([]byte{first, 0xFE}, uint16(n))
	}
	return append(append(b, 0, 0, 0, 0), data...)
}

// TestMemoryOfMessages: 1,500 WebSockets, of each protocol and of all, with 930 KiB of a message that never becomes
// whole: in one frame, and in fragments.
func TestMemoryOfMessages(t *testing.T) {
	beside(t)
	const size = 930 << 10
	text := strings.Repeat("x", size)
	whole := socketFrame(0x81, text)
	whole = whole[:len(whole)-1]
	pieces := socketFrame(0x01, text[:64<<10])
	for range size>>16 - 1 {
		pieces = append(pieces, socketFrame(0x00, text[:64<<10])...)
	}
	attack := func(t *testing.T, of func(i int) int) {
		b := besiege(t)
		b.hold(1500/b.parts, func(ctx context.Context, i int) {
			s := sockets[of(i)]
			token := b.share
			if s.greedy {
				token = b.greedy[i%len(b.greedy)]
			}
			c, err := b.upgrade(ctx, s.path, token)
			if err != nil {
				return
			}
			message := whole
			if i%2 == 1 {
				message = pieces
			}
			_, _ = c.Write(message) // it is refused, or has to wait
			<-ctx.Done()
		})
	}
	t.Run("all", func(t *testing.T) { attack(t, func(i int) int { return i % len(sockets) }) })
	if !long() {
		return
	}
	for n, s := range sockets {
		t.Run(s.name, func(t *testing.T) { attack(t, func(int) int { return n }) })
	}
}

// TestMemoryOfReceipts: 500 clients that publish lines which are refused, and read no answer, by each way and by all.
func TestMemoryOfReceipts(t *testing.T) {
	beside(t)
	ways := []string{"WebSocket", "HTTP/1.1", "HTTP/2", "gRPC"}
	attack := func(t *testing.T, of func(i int) string) {
		b := besiege(t)
		b.hold(500/b.parts, func(ctx context.Context, i int) { b.publishDeaf(ctx, of(i), b.greedy[i/len(ways)%len(b.greedy)]) })
	}
	t.Run("all", func(t *testing.T) { attack(t, func(i int) string { return ways[i%len(ways)] }) })
	if !long() {
		return
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) { attack(t, func(int) string { return way }) })
	}
}

// publishDeaf publishes until ctx ends or nothing more is taken, and reads nothing.
func (b *besieged) publishDeaf(ctx context.Context, way, token string) {
	lines := refusedLines(way)
	switch way {
	case "WebSocket":
		c, err := b.upgrade(ctx, "/v1/agent/events", token)
		for err == nil {
			_, err = c.Write(lines)
		}
	case "HTTP/1.1":
		c, err := b.dial(ctx)
		if err != nil {
			return
		}
		_, err = fmt.Fprintf(c, "POST /v1/agent/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n", b.addr, token)
		for err == nil {
			_, err = fmt.Fprintf(c, "%x\r\n%s\r\n", len(lines), lines)
		}
	default:
		b.publishHTTP2(ctx, way, token, lines)
	}
	<-ctx.Done()
}

func (b *besieged) publishHTTP2(ctx context.Context, way, token string, lines []byte) {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 4 << 10}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	path, kind := "/v1/agent/events", "application/x-ndjson"
	if way == "gRPC" {
		path, kind = "/agent.v1.AgentIngest/Publish", "application/grpc"
	}
	r, w := io.Pipe()
	defer r.Close()
	b.attack.Go(func() {
		err := error(nil)
		for err == nil {
			_, err = w.Write(lines)
		}
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url(path), r)
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	<-ctx.Done()
}

// refusedLines are 64 KiB of lines that are refused, with more words than they have themselves.
func refusedLines(way string) (b []byte) {
	for i := 0; len(b) < 64<<10; i++ {
		run, typ := fmt.Sprint("r", i%100), "no.such.type"
		line := fmt.Sprintf(`{"run_id":%q,"type":%q}`, run, typ)
		switch way {
		case "WebSocket":
			b = append(b, socketFrame(0x81, line)...)
		case "gRPC":
			e := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), typ)
			e = protowire.AppendString(protowire.AppendTag(e, 4, protowire.BytesType), run)
			m := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), e)
			b = append(encoding.BigEndian.AppendUint32(append(b, 0), uint32(len(m))), m...)
		default:
			b = append(append(b, line...), '\n')
		}
	}
	return b
}
