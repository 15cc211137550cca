package natskit

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// bits is a connection that is read in pieces of at most n bytes.
type bits struct {
	net.Conn
	rest []byte
	n    int
}

func (b *bits) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest[:min(len(b.rest), b.n)])
	b.rest = b.rest[n:]
	return n, nil
}

// through returns what is read of sent, in pieces, by way of a WireTap that takes answers to "_IN.a." and copies of
// "live.", and what was taken.
func through(t testing.TB, sent string, piece, room int) (passed string, taken []string) {
	t.Helper()
	w := new(WireTap)
	w.DivertAnswers("_IN.a.", func(name, data []byte) { taken = append(taken, string(name)+"="+string(data)) })
	w.DivertCopies("live.", func(name, header, data []byte) { taken = append(taken, fmt.Sprintf("%s=%s|%s", name, header, data)) })
	c, err := w.wrap(&bits{rest: []byte(sent), n: piece}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for p := make([]byte, room); ; {
		n, err := c.Read(p)
		if out.Write(p[:n]); err == io.EOF {
			return out.String(), taken
		}
		if err != nil || n == 0 {
			t.Fatalf("%d, %v", n, err)
		}
	}
}

// TestWireTakes: what is for the taker is taken, wherever the pieces end in which it is read, and all else passes as it
// is.
func TestWireTakes(t *testing.T) {
	info := `INFO {"server_id":"x","max_payload":1048576,"urls":"` + strings.Repeat("long ", 2000) + "\"}\r\n"
	mine := func(id, data string) string { return fmt.Sprintf("MSG _IN.a.%s 7 %d\r\n%s\r\n", id, len(data), data) }
	within := "MSG _IN.a.9 7 2\r\nab\r\nPING\r\n"
	others := []string{
		info, "PING\r\n", "PONG\r\n", "+OK\r\n", "-ERR 'Slow'\r\n",
		"MSG other 3 5\r\nhello\r\n",
		"MSG _IN.ab.1 3 4\r\nMSG \r\n",
		"MSG _IN.a.7 7 reply.to 2\r\nab\r\n",
		"HMSG _IN.a.8 7 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
		"MSG other 3 0\r\n\r\n",
		fmt.Sprintf("MSG other 3 %d\r\n%s\r\n", len(within), within),
	}
	copies := []string{"HMSG live.run.x 9 18 23\r\nNATS/1.0\r\nA: b\r\n\r\nhello\r\n", "MSG live.kid 9 reply 0\r\n\r\n",
		"HMSG live.big 9 12 9012\r\nNATS/1.0\r\n\r\n" + strings.Repeat("PING\r\n12", 1125) + "\r\n"}
	var sent, want strings.Builder
	var takes []string
	for i, o := range others {
		id, data := fmt.Sprint(i), fmt.Sprintf(`{"stream":"S","seq":%d}`, i*i)
		sent.WriteString(o + mine(id, data) + mine(id+"x", ""))
		want.WriteString(o)
		takes = append(takes, id+"="+data, id+"x=")
		if i < len(copies) {
			sent.WriteString(copies[i])
			takes = append(takes, []string{"run.x=NATS/1.0\r\nA: b\r\n\r\n|hello", "kid=|",
				"big=NATS/1.0\r\n\r\n|" + strings.Repeat("PING\r\n12", 1125)}[i])
		}
	}
	sent.WriteString(mine("long", strings.Repeat("x", 5000)))
	takes = append(takes, "long="+strings.Repeat("x", 5000))
	for _, room := range []int{16 << 10, 32 << 10} {
		for _, piece := range []int{1, 2, 3, 5, 7, 16, 100, 1000, 1 << 20} {
			passed, taken := through(t, sent.String(), piece, room)
			if passed != want.String() {
				t.Fatalf("pieces of %d: passed\n%.300q\nwant\n%.300q", piece, passed[max(0, len(passed)-300):],
					want.String()[max(0, want.Len()-300):])
			}
			if !slices.Equal(taken, takes) {
				t.Fatalf("pieces of %d: taken %.2000q, want %.2000q", piece, taken, takes)
			}
		}
	}
}

// FuzzWire: what is no text of the protocol passes as it is, and nothing hangs.
func FuzzWire(f *testing.F) {
	for _, s := range []string{"\x16\x03\x01\x02\x00",
		"HTTP/1.1 101 Switching Protocols\r\n\r\nMSG _IN.a.1 7 0\r\n\r\n", "MSG _IN.a.1 7 -1\r\n", "MSG a\r\n",
		"HMSG live.x 1 9 3\r\n", "HMSG live.x 1 2\r\n", "MSG \r\n", "HMSG  3\r\n", "MSG live.x 1 99999999999\r\nab",
		"INFO {}\r\n\x16\x03\n\n", "MS", "PIN\r\nx"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, piece int) {
		passed, taken := through(t, s, max(1, piece&1023), 32<<10)
		if len(taken) == 0 && !strings.HasPrefix(s, passed) || !strings.Contains(s, "MSG _IN.a.") &&
			!strings.Contains(s, "MSG live.") && len(taken) > 0 {
			t.Errorf("%q: passed %q, taken %q", s, passed, taken)
		}
	})
}

// gated is a connection whose writes wait.
type gated struct {
	net.Conn
	begun, release chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	g.begun <- struct{}{}
	<-g.release
	return len(p), nil
}

// TestWireWritesForOthersOnce: who writes returns with its own message written, however many others wait by then.
func TestWireWritesForOthersOnce(t *testing.T) {
	g := &gated{begun: make(chan struct{}), release: make(chan struct{})}
	c := &tappedConn{Conn: g, of: new(WireTap)}
	first := make(chan struct{})
	go func() { defer close(first); c.publish("a", "b", nil, []byte("first"), false) }()
	<-g.begun
	c.publish("a", "b", nil, []byte("second"), false) // leaves it to who writes
	g.release <- struct{}{}
	<-g.begun // the second is being written
	<-first
	c.publish("a", "b", nil, []byte("third"), false)
	g.release <- struct{}{}
	<-g.begun
	g.release <- struct{}{}
	for busy := true; busy; {
		c.mu.Lock()
		busy = c.busy
		c.mu.Unlock()
	}
}

// sizes is a connection that tells how much each write has.
type sizes struct {
	net.Conn
	mu  sync.Mutex
	got []int
}

func (s *sizes) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, bytes.Count(p, []byte("HPUB ")))
	return len(p), nil
}

// TestWireJoins: patient messages that follow a write closely are written together, and no message waits for longer
// than joining; one that is not patient takes along what waits.
func TestWireJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sizes)
		c := &tappedConn{Conn: s, of: new(WireTap)}
		publish := func(patient bool) { c.publish("a", "b", nil, nil, patient) }
		written := func(want ...int) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.got, want) {
				t.Fatalf("%v, want %v", s.got, want)
			}
		}
		publish(true) // nothing was written before
		for range 3 {
			time.Sleep(joining / 8)
			publish(true)
		}
		written(1)
		time.Sleep(joining - 3*joining/8)
		written(1, 3)
		publish(true)
		publish(false)
		written(1, 3, 2)
		time.Sleep(2 * joining)
		publish(true)
		written(1, 3, 2, 1)
	})
}

// TestWirePublishes: many publish at once; each message arrives whole, and those of one publisher in order. A
// connection that was broken is used again once its subscription is known.
func TestWirePublishes(t *testing.T) {
	s, err := Start(Embedded{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nc, err := Dial("", "wire", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	w := TapOf(nc)
	answers := make(chan string, 1024)
	if !w.DivertAnswers("_IN.w.", func(name, data []byte) { answers <- string(name) + "=" + string(data) }) {
		t.Fatal("there is a taker")
	}
	if w.DivertAnswers("_IN.v.", nil) {
		t.Fatal("there are two takers")
	}
	if w.Ready() {
		t.Fatal("ready before anything was asked for")
	}
	if _, err := nc.Subscribe("_IN.w.*", func(m *nats.Msg) { t.Errorf("not taken: %s", m.Subject) }); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe("ask", func(m *nats.Msg) {
		if err := nc.Publish(m.Reply, append([]byte(m.Header.Get("N")+":"), m.Data...)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); !w.Ready(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("not ready")
			}
		}
		const writers, each = 8, 200
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for n := range each {
					header := fmt.Appendf(nil, "NATS/1.0\r\nN: %d\r\n\r\n", n)
					if !w.Publish("ask", fmt.Sprintf("_IN.w.%d", i), header, bytes.Repeat([]byte{'a' + byte(i)}, n), n%3 == 0) {
						t.Error("not sent")
					}
				}
			})
		}
		var next [writers]int
		for range writers * each {
			var i, n int
			var body string
			if _, err := fmt.Sscanf(<-answers, "%d=%d:%s", &i, &n, &body); err != nil && n > 0 {
				t.Fatal(err)
			}
			if n != next[i] || body != strings.Repeat(string(rune('a'+i)), n) {
				t.Fatalf("writer %d: message %d with %q, expected %d", i, n, body, next[i])
			}
			next[i]++
		}
		wg.Wait()
		if round == 0 {
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
