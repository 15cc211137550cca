//go:build !race

package serve_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"agentstream/protocols/langgraph/serve"
)

// bare is a socket whose client holds next to nothing.
type bare struct {
	net.Conn
	in *bufio.Reader
}

func (n *node) bare(at string) bare {
	n.T.Helper()
	conn, err := net.Dial("tcp", n.Host)
	if err != nil {
		n.T.Fatal(err)
	}
	b := bare{conn, bufio.NewReaderSize(conn, 512)}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", at)
	resp, err := http.ReadResponse(b.in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		n.T.Fatal(resp, err)
	}
	return b
}

// say sends a text of less than 64 KiB, masked with nothing.
func (b bare) say(text string) {
	text += strings.Repeat(" ", 126) // so that its length takes two bytes
	_, _ = b.Write(append(binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(text))),
		append(make([]byte, 4), text...)...))
}

// hear returns the next text.
func (b bare) hear() (string, error) {
	for {
		var head [4]byte
		if _, err := io.ReadFull(b.in, head[:2]); err != nil {
			return "", err
		}
		size := int(head[1])
		if size == 126 {
			if _, err := io.ReadFull(b.in, head[2:]); err != nil {
				return "", err
			}
			size = int(binary.BigEndian.Uint16(head[2:]))
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(b.in, text); err != nil || head[0] == 0x81 {
			return string(text), err
		}
	}
}

// TestIdleSocketsAreSmall: a socket that holds a subscription and is silent takes no goroutine, and at most 8 KiB of
// heap and stack, its client included.
func TestIdleSocketsAreSmall(t *testing.T) {
	const conns, most = 2000, 8 << 10
	n := start(t, serve.Config{})
	n.Say("t", text("a"))
	open := func(sockets int) (all []bare) {
		for range sockets {
			b := n.bare(eventsOf("t"))
			b.say(`{"id":1,"method":"subscription.subscribe","params":{"channels":["messages"]}}`)
			all = append(all, b)
		}
		for _, b := range all {
			for s := ""; !strings.Contains(s, "content-block-delta"); {
				var err error
				if s, err = b.hear(); err != nil {
					t.Fatal(err)
				}
			}
		}
		return all
	}
	memory := func() uint64 {
		for range 3 { // pools let go of what they hold with the second
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	all := open(1)
	defer func() {
		for _, b := range all {
			b.Close()
		}
	}()
	goroutines := runtime.NumGoroutine()
	before := memory()
	all = append(all, open(conns)...)
	eventually(t, "no goroutine is held", func() bool { return runtime.NumGoroutine() < goroutines+20 })
	each := (int64(memory()) - int64(before)) / conns
	if t.Logf("%d bytes for each of %d sockets", each, conns); each > most {
		t.Errorf("%d bytes for each socket, want at most %d", each, most)
	}
	n.Say("t", text("b"))
	for _, b := range all {
		if s, err := b.hear(); err != nil || !strings.Contains(s, `"text":"b"`) {
			t.Fatalf("%s, %v", s, err)
		}
	}
}

// TestSubscriptionsAreSmall: a subscription on a socket that has 64 takes at most 16 KiB, its id included, also with
// the longest filter that is taken; a longer one is refused.
func TestSubscriptionsAreSmall(t *testing.T) {
	const conns, each, most = 30, 64, 16 << 10
	n := start(t, serve.Config{})
	n.Say("t", text("a"))
	memory := func() uint64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for name, segment := range map[string]int{"short": 10, "long": 960} {
		t.Run(name, func(t *testing.T) {
			var all []bare
			open := func(sockets int) {
				for range sockets {
					b := n.bare(eventsOf("t"))
					all = append(all, b)
					for i := range each {
						b.say(fmt.Sprintf(`{"id":%d,"method":"subscription.subscribe","params":{"channels":["custom"],"namespaces":[["n%d%[3]s","%[3]s","%[3]s"]]}}`, i+1, i, strings.Repeat("x", segment)))
						s, err := b.hear()
						if err != nil || !strings.Contains(s, `"subscription_id"`) {
							t.Fatalf("%.200s %v", s, err)
						}
					}
				}
			}
			open(2)
			before := memory()
			open(conns)
			took := (int64(memory()) - int64(before)) / (conns * each)
			t.Logf("%d bytes for each subscription", took)
			if took > most {
				t.Errorf("%d bytes for each subscription, want at most %d", took, most)
			}
			for _, b := range all {
				b.Close()
			}
		})
	}
	b := n.bare(eventsOf("t"))
	defer b.Close()
	b.say(fmt.Sprintf(`{"id":1,"method":"subscription.subscribe","params":{"channels":["custom"],"namespaces":[["%[1]s","%[1]s","%[1]s","%[1]s"]]}}`, strings.Repeat("x", 1000)))
	if s, err := b.hear(); err != nil || !strings.Contains(s, "invalid_argument") {
		t.Errorf("a filter of 4 KiB: %.200s %v", s, err)
	}
}
