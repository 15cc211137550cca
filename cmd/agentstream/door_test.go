//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/testkit"
)

// fewFiles runs a command with few descriptors until the test ends, and returns what it says.
func fewFiles(t *testing.T, files int, args ...string) *clitest.LockedBuffer {
	t.Helper()
	said := new(clitest.LockedBuffer)
	cmd := exec.CommandContext(t.Context(), "sh",
		append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files)}, args...)...)
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
	binary := clitest.Program(t)
	clients, operators := testkit.FreeAddr(t), testkit.FreeAddr(t)
	admin := "http://" + operators
	said := fewFiles(t, 128, binary, "edge", "--level", "debug", "--nats", nats, "--insecure-no-auth", "--listen",
		clients, "--admin-listen", operators)
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
	if _, text := probe(t.Context(), admin+"/metrics"); !strings.Contains(text,
		"\nagentstream_connections_refused_total ") || strings.Contains(text, "\nagentstream_connections_refused_total 0\n") {
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
