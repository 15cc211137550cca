//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/internal/testkit"
)

// fewFiles runs a command with few descriptors until the test ends, and returns what it says.
func fewFiles(t *testing.T, files int, args ...string) *lockedBuffer {
	t.Helper()
	said := new(lockedBuffer)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files)}, args...)...)
	cmd.Stderr = said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return said
}

// probe asks once, over a connection of its own.
func probe(ctx context.Context, url string) (status int, body string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// soon repeats a probe until the status is there, for half a minute.
func soon(t *testing.T, url string, status int) string {
	t.Helper()
	got, text := 0, ""
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		if got, text = probe(t.Context(), url); got == status {
			return text
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatalf("%s: %d %s", url, got, text)
	return ""
}

// An edge with more connections than descriptors answers its probes, says what is wrong, refuses the rest in words,
// and serves again when they are gone.
func TestFullOfConnections(t *testing.T) {
	nats := testkit.NATS(t).Server.ClientURL()
	binary := program(t)
	addrs, err := freeAddrs(2)
	if err != nil {
		t.Fatal(err)
	}
	clients, admin := addrs[0], "http://"+addrs[1]
	said := fewFiles(t, 128, binary, "edge", "--nats", nats, "--insecure-no-auth", "--listen", clients, "--admin-listen", addrs[1])
	soon(t, admin+"/readyz", http.StatusOK)
	if !strings.Contains(said.String(), "limit=128") {
		t.Errorf("the limit is not said: %s", said)
	}
	var open []net.Conn
	for range 300 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", clients)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n") // and no more
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, text := probe(t.Context(), admin+path); status != http.StatusOK {
			t.Errorf("%s while it is full: %d %s", path, status, text)
		}
	}
	text := soon(t, "http://"+clients+"/healthz", http.StatusServiceUnavailable)
	if !strings.Contains(text, `"BUSY"`) {
		t.Errorf("refused with %s", text)
	}
	if _, text := probe(t.Context(), admin+"/metrics"); !strings.Contains(text, "\nagentstream_connections_refused_total ") || strings.Contains(text, "\nagentstream_connections_refused_total 0\n") {
		t.Error("refused connections are not counted")
	}
	if !strings.Contains(said.String(), "level=WARN") {
		t.Errorf("nothing was said: %s", said)
	}
	for _, c := range open {
		c.Close()
	}
	soon(t, "http://"+clients+"/healthz", http.StatusOK)
}

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
		d := &door{log: slog.New(slog.NewTextHandler(&said, nil)), failed: func() { failures++ },
			Listener: &scripted{accept: func() (net.Conn, error) { return nil, syscall.EMFILE }}}
		for range 100 {
			if _, err := d.Accept(); !errors.Is(err, syscall.EMFILE) {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if lines := strings.Count(said.String(), "level=WARN"); failures != 100 || lines != 2 || !strings.Contains(said.String(), "too many open files") {
			t.Errorf("%d failures, said in %d lines:\n%s", failures, lines, &said)
		}
		d.Listener = &scripted{accept: func() (net.Conn, error) { return nil, net.ErrClosed }}
		if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) || failures != 100 {
			t.Errorf("the end: %v, %d", err, failures)
		}
	})
}

// A door with a spare descriptor lets one more in when there are none.
func TestSpareDescriptor(t *testing.T) {
	var d *door
	us, them := net.Pipe()
	defer us.Close()
	defer them.Close()
	d = &door{log: slog.New(slog.DiscardHandler), spares: 1, Listener: &scripted{accept: func() (net.Conn, error) {
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

// Who comes to a full door with a request is told in the words of the protocol.
func TestRefusedAtTheDoor(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, 1)
	d := &door{Listener: ln, most: 1, log: slog.New(slog.DiscardHandler), refused: func() { refused <- struct{}{} }}
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
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !resp.Close || !bytes.Contains(text, []byte(`"BUSY"`)) {
		t.Errorf("%v %v %s %v", resp.StatusCode, resp.Header, text, err)
	}
	<-refused
	ln.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	d.wait()
}
