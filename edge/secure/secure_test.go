package secure_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/secure"
	"agentstream/edge/transport"
	"agentstream/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a listener with TLS, whose connections come out of conns.
type served struct {
	addr    string
	files   *secure.Files
	conns   chan net.Conn
	reasons chan secure.Reason
}

// serve listens until the test ends.
func serve(t *testing.T, cfg secure.Config) *served {
	t.Helper()
	s := &served{conns: make(chan net.Conn, 100), reasons: make(chan secure.Reason, 100)}
	cfg.Failed = func(why secure.Reason) { s.reasons <- why }
	var err error
	if s.files, err = secure.Open(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.conns <- s.files.Wrap(c)
		}
	})
	t.Cleanup(func() { ln.Close(); accepting.Wait() })
	return s
}

// pair connects a client. Both sides have done the handshake.
func (s *served) pair(t *testing.T, cfg *tls.Config) (here *secure.Conn, there *tls.Conn) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		here = (<-s.conns).(*secure.Conn)
		_, err := here.Read(make([]byte, 1))
		result <- err
	}()
	c, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	there = c.(*tls.Conn)
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// TestCertificateIsReadAgain replaces the files: the next handshake has the new certificate, a connection that is there
// goes on, and files that do not fit each other change nothing.
func TestCertificateIsReadAgain(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "127.0.0.1")
	s := serve(t, secure.Config{Cert: cert, Key: key})
	here, there := s.pair(t, ca.Config(t, ""))
	first := there.ConnectionState().PeerCertificates[0].SerialNumber
	ca.Issue(t, dir, "127.0.0.1")
	serial := func() string {
		_, c := s.pair(t, ca.Config(t, ""))
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	for serial() == first.String() {
		time.Sleep(50 * time.Millisecond)
	}
	second := serial()
	if err := os.WriteFile(key, []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for s.files.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	if got := serial(); got != second {
		t.Errorf("with a broken key the certificate is %s, want %s still", got, second)
	}
	if _, err := here.Write([]byte("old")); err != nil {
		t.Error("the connection that was there:", err)
	}
	if _, err := io.ReadFull(there, make([]byte, 3)); err != nil {
		t.Error("the connection that was there:", err)
	}
	ca.Issue(t, dir, "127.0.0.1")
	for s.files.Err() != nil {
		time.Sleep(50 * time.Millisecond)
	}
}

// TestFilesThatCannotBeUsed name the file.
func TestFilesThatCannotBeUsed(t *testing.T) {
	ca := testkit.NewAuthority(t)
	cert, key := ca.Issue(t, t.TempDir(), "a")
	_, other := ca.Issue(t, t.TempDir(), "b")
	for name, cfg := range map[string]secure.Config{
		"no key":       {Cert: cert},
		"no cert":      {Key: key},
		"of another":   {Cert: cert, Key: other},
		"not there":    {Cert: cert + ".none", Key: key},
		"no authority": {Cert: cert, Key: key, ClientCA: key},
	} {
		if _, err := secure.Open(cfg); err == nil {
			t.Errorf("%s: is accepted", name)
		}
	}
}

// TestHandshakesThatFail are bounded in time, classified, and leave no connection.
func TestHandshakesThatFail(t *testing.T) {
	ca, stranger, own := testkit.NewAuthority(t), testkit.NewAuthority(t), t.TempDir()
	dir, outside := t.TempDir(), t.TempDir()
	cert, key := ca.Issue(t, dir, "127.0.0.1")
	ca.Issue(t, own, "client")
	stranger.Issue(t, outside, "client")
	s := serve(t, secure.Config{Cert: cert, Key: key, ClientCA: ca.CA, Timeout: 300 * time.Millisecond})
	old, shown := ca.Config(t, own), ca.Config(t, outside)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	handshake := func(cfg *tls.Config) func(net.Conn) {
		return func(c net.Conn) {
			cfg.ServerName = "127.0.0.1"
			client := tls.Client(c, cfg)
			if client.Handshake() == nil {
				_, _ = client.Read(make([]byte, 1)) // of TLS 1.3 the server refuses afterwards
			}
		}
	}
	for name, one := range map[string]struct {
		do   func(net.Conn)
		want secure.Reason
	}{
		"silent":             {func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, secure.ReasonTimeout},
		"half a hello":       {func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 1, 0, 90, 1}); _, _ = c.Read(make([]byte, 1)) }, secure.ReasonTimeout},
		"left":               {func(c net.Conn) { c.Close() }, secure.ReasonClosed},
		"without TLS":        {func(c net.Conn) { expectPlain(t, c) }, secure.ReasonPlain},
		"no certificate":     {handshake(ca.Config(t, "")), secure.ReasonClient},
		"of another":         {handshake(shown), secure.ReasonClient},
		"does not trust":     {handshake(stranger.Config(t, outside)), secure.ReasonRejected},
		"an old version":     {handshake(old), secure.ReasonProtocol},
		"a record of naught": {func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 1, 0, 4, 9, 0, 0, 0}); _, _ = io.Copy(io.Discard, c) }, secure.ReasonProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var reading sync.WaitGroup
			reading.Go(func() {
				here := <-s.conns
				if _, err := here.Read(make([]byte, 1)); !errors.Is(err, secure.ErrHandshake) {
					t.Errorf("read: %v", err)
				}
				if _, err := here.Write([]byte("x")); !errors.Is(err, secure.ErrHandshake) {
					t.Errorf("write: %v", err)
				}
			})
			one.do(c)
			reading.Wait()
			if got := <-s.reasons; got != one.want {
				t.Errorf("reason %q, want %q", got, one.want)
			}
		})
	}
	s.pair(t, ca.Config(t, own)) // who has one is let in
}

// expectPlain asks without TLS.
func expectPlain(t *testing.T, c net.Conn) {
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	answer, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("the answer is %q", answer)
	}
}

// TestWritesThatDoNotWait has a client that reads in fits and starts, a server that tries and waits in turn, and
// clients that ask for new keys meanwhile: every byte arrives once and in order.
func TestWritesThatDoNotWait(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "127.0.0.1")
	s := serve(t, secure.Config{Cert: cert, Key: key})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := ca.Config(t, "")
		cfg.MaxVersion = version
		here, there := s.pair(t, cfg)
		if tcp, ok := transport.TCP(here); ok {
			_ = tcp.SetWriteBuffer(4 << 10)
		}
		try := transport.NewTry(here)
		if try == nil {
			t.Skip("this system has no such writes")
		}
		var got bytes.Buffer
		var reading sync.WaitGroup
		reading.Go(func() {
			var b [32 << 10]byte
			for {
				n, err := there.Read(b[:1+rand.IntN(len(b)-1)])
				got.Write(b[:n])
				if err != nil {
					return
				}
				if rand.IntN(20) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
		sent, parts := writeInTurns(t, here, try)
		here.Close()
		reading.Wait()
		if !bytes.Equal(got.Bytes(), sent) {
			t.Errorf("version %x: %d bytes arrived, %d were sent; or they differ", version, got.Len(), len(sent))
		}
		if parts == 0 {
			t.Errorf("version %x: no write was taken in part: the test shows nothing", version)
		}
	}
}

// writeInTurns writes by trying, and by waiting for what was not taken.
func writeInTurns(t *testing.T, here net.Conn, try *transport.Try) (sent []byte, parts int) {
	for i := range 150 {
		b := bytes.Repeat([]byte{byte('a' + i%26)}, 2+rand.IntN(60<<10))
		sent = append(sent, b...)
		n, err := try.Write(b)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && n < len(b) {
			parts++
		}
		if n < len(b) {
			if _, err := here.Write(b[n:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sent, parts
}

// TestReadsThatDoNotWait find nothing, then what there is, then the end.
func TestReadsThatDoNotWait(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "127.0.0.1")
	s := serve(t, secure.Config{Cert: cert, Key: key})
	here, there := s.pair(t, ca.Config(t, ""))
	try := transport.NewTry(here)
	if try == nil {
		t.Skip("this system has no such reads")
	}
	b := make([]byte, 100)
	if n, err := try.Read(b); n != 0 || err != nil {
		t.Fatalf("nothing is there: %d, %v", n, err)
	}
	await := func() (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for ctx.Err() == nil {
			if n, err := try.Read(b); n > 0 || err != nil {
				return n, err
			}
			time.Sleep(time.Millisecond)
		}
		return 0, ctx.Err()
	}
	_, _ = there.Write([]byte("hello"))
	if n, err := await(); n != 5 || err != nil {
		t.Fatalf("read %d, %v", n, err)
	}
	there.Close()
	if _, err := await(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestCloseDoesNotWait closes a connection whose client reads nothing.
func TestCloseDoesNotWait(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "127.0.0.1")
	s := serve(t, secure.Config{Cert: cert, Key: key})
	for _, held := range []bool{false, true} {
		here, _ := s.pair(t, ca.Config(t, ""))
		if held && !here.Unblock() {
			t.Skip("this system has no such writes")
		}
		var writing sync.WaitGroup
		full := make(chan struct{})
		writing.Go(func() {
			b := make([]byte, 64<<10)
			for i := 0; ; i++ {
				if i == 200 {
					close(full) // more than both kernels' buffers would hold is under way
				}
				if _, err := here.Write(b); err != nil {
					return
				}
			}
		})
		select {
		case <-full:
		case <-time.After(500 * time.Millisecond): // it waits for the client
		}
		closed := make(chan struct{})
		go func() { here.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Fatalf("held %v: Close waits for the client", held)
		}
		writing.Wait()
	}
}

// TestExpiryIsKnown reads when the certificate ends.
func TestExpiryIsKnown(t *testing.T) {
	ca, dir := testkit.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "a")
	f, err := secure.Open(secure.Config{Cert: cert, Key: key, ClientCA: filepath.Join(filepath.Dir(ca.CA), "ca.pem")})
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(f.Expiry()); left < 50*time.Minute || left > time.Hour {
		t.Errorf("it expires in %v", left)
	}
}
