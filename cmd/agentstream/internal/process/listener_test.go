//go:build unix

package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a listener that gives what it is told to.
type scripted struct {
	net.Listener
	accept func() (net.Conn, error)
}

func (s *scripted) Accept() (net.Conn, error) { return s.accept() }

// Errors of accept are said, but not each of them.
func TestAcceptErrorsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		failures := 0
		d := &LimitListener{log: slog.New(slog.NewTextHandler(&said, nil)), failed: func() { failures++ },
			Listener: &scripted{accept: func() (net.Conn, error) { return nil, syscall.EMFILE }}}
		for range 100 {
			if _, err := d.Accept(); !errors.Is(err, syscall.EMFILE) {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if lines := strings.Count(said.String(), "level=WARN"); failures != 100 || lines != 2 ||
			!strings.Contains(said.String(), "too many open files") {
			t.Errorf("%d failures, said in %d lines:\n%s", failures, lines, &said)
		}
		d.Listener = &scripted{accept: func() (net.Conn, error) { return nil, net.ErrClosed }}
		if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) || failures != 100 {
			t.Errorf("the end: %v, %d", err, failures)
		}
	})
}

// A listener with a spare descriptor lets one more in when there are none.
func TestSpareDescriptor(t *testing.T) {
	var d *LimitListener
	us, them := net.Pipe()
	defer us.Close()
	defer them.Close()
	d = &LimitListener{log: slog.New(slog.DiscardHandler), spares: 1,
		Listener: &scripted{accept: func() (net.Conn, error) {
			if len(d.spare) > 0 {
				return nil, syscall.EMFILE
			}
			return us, nil
		}}}
	d.stock()
	if len(d.spare) != 1 {
		t.Fatal("there is no spare")
	}
	c, err := d.Accept()
	if err != nil || c != us {
		t.Fatalf("%v %v", c, err)
	}
}

// Who comes to a full listener with a request is told in the words of the protocol.
func TestRefusedByTheLimit(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, 1)
	d := &LimitListener{Listener: ln, most: 1, log: slog.New(slog.DiscardHandler),
		refused: func() { refused <- struct{}{} }}
	done := make(chan error, 1)
	go func() { _, err := d.Accept(); done <- err }()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /v1/agent/runs HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
		!resp.Close || !bytes.Contains(text, []byte(`"BUSY"`)) {
		t.Errorf("%v %v %s %v", resp.StatusCode, resp.Header, text, err)
	}
	<-refused
	ln.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	d.Wait()
}
