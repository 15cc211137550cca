package edgetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// SmallConn is a client that holds nothing but its connection.
type SmallConn struct {
	T    testing.TB
	Conn net.Conn
}

// Send writes a text.
func (c SmallConn) Send(text string) {
	c.T.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.T.Fatal(err)
	}
}

// Until reads until there is a text at the end of what came.
func (c SmallConn) Until(buf []byte, text string) {
	c.T.Helper()
	for n := 0; !bytes.Contains(buf[:n], []byte(text)); {
		m, err := c.Conn.Read(buf[n:])
		if n += m; err != nil {
			c.T.Fatalf("%v behind %q", err, buf[:n])
		}
	}
}

// CloseAll closes connections.
func CloseAll(clients []SmallConn) {
	for _, c := range clients {
		_ = c.Conn.Close()
	}
}

// PublishPath is where lines of many runs are published.
const PublishPath = "/v1/agent/events"

// LineOf returns a line of a publish stream, with more members.
func LineOf(run, more string) string {
	return fmt.Sprintf(`{"run_id":%q,"type":"text.delta","payload":{"text":"a"}%s}`, run, more)
}

// Publisher is a client whose request body stays open.
type Publisher struct {
	T    testing.TB
	W    *io.PipeWriter
	resp *http.Response
	R    *bufio.Reader
	stop context.CancelFunc
}

// Publish opens a publish stream.
func (h *House) Publish(client *http.Client, headers ...string) *Publisher {
	h.T.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r, w := io.Pipe()
	req := h.Request("POST", PublishPath, "", headers...).WithContext(ctx)
	req.Body = r
	resp, err := client.Do(req)
	if err != nil {
		stop()
		h.T.Fatal(err)
	}
	p := &Publisher{h.T, w, resp, bufio.NewReader(resp.Body), stop}
	h.T.Cleanup(func() { stop(); w.Close(); resp.Body.Close() })
	return p
}
