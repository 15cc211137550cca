package ws

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lxzan/gws"

	"agentstream/edge/dialect"
)

// discard is a connection that takes everything at once.
type discard struct {
	net.Conn
	writes int
}

func (d *discard) Write(b []byte) (int, error)    { d.writes++; return len(b), nil }
func (*discard) SetWriteDeadline(time.Time) error { return nil }
func (*discard) SetDeadline(time.Time) error      { return nil }
func (*discard) Close() error                     { return nil }
func (*discard) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

func open(t testing.TB) (*SocketSink, *discard) {
	t.Helper()
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := &discard{}
	s := &SocketSink{t: tr, conn: d, done: make(chan struct{})}
	s.out.open = true
	return s, d
}

func batch(n, size int) []dialect.Frame {
	list := make([]dialect.Frame, n)
	for i := range list {
		list[i].Data = bytes.Repeat([]byte("x"), size)
	}
	return list
}

func TestWritingDoesNotAllocate(t *testing.T) {
	s, d := open(t)
	for _, frames := range [][]dialect.Frame{batch(100, 300), batch(40, 100<<10)} {
		write := func() {
			if err := s.Write(frames); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		write()
		d.writes = 0
		write()
		if size := len(frames[0].Data); size < 1000 && d.writes != 1 {
			t.Errorf("%d frames of %d bytes in %d writes", len(frames), size, d.writes)
		}
		// A buffer that the pool has lost, as it does on purpose under the race detector, is made again.
		if n := testing.AllocsPerRun(1000, write); n > float64(len(frames))/10 {
			t.Errorf("%v allocations for %d frames", n, len(frames))
		}
	}
}

// BenchmarkSink writes batches of 32 frames of 300 bytes.
func BenchmarkSink(b *testing.B) {
	s, _ := open(b)
	frames := batch(32, 300)
	b.ReportAllocs()
	b.SetBytes(32 * 304)
	for b.Loop() {
		if err := s.Write(frames); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(32*b.N)/b.Elapsed().Seconds(), "frames/s")
}

// BenchmarkGWS writes the same with the library's own writer, which makes one write of each frame.
func BenchmarkGWS(b *testing.B) {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Replace(upgrade, "keep-alive, Upgrade",
		"Upgrade", 1) + "\r\n")))
	if err != nil {
		b.Fatal(err)
	}
	up := gws.NewUpgrader(&gws.BuiltinEventHandler{}, &gws.ServerOption{CheckUtf8Enabled: true})
	c, err := up.UpgradeFromConn(&discard{}, nil, r)
	if err != nil {
		b.Fatal(err)
	}
	frames := batch(32, 300)
	b.ReportAllocs()
	b.SetBytes(32 * 304)
	for b.Loop() {
		for _, f := range frames {
			if err := c.WriteMessage(gws.OpcodeText, f.Data); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(32*b.N)/b.Elapsed().Seconds(), "frames/s")
}
