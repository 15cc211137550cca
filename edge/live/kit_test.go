package live_test

import (
	"context"
	"net"
	"strings"

	"agentstream/edge/edgetest"
)

func dialConn(p *edgetest.Pipes, ctx context.Context) (net.Conn, error) {
	return p.DialContext(ctx, "", "")
}

// smallConn opens a connection and sends a request.
func smallConn(h *edgetest.House, head string, headers ...string) edgetest.SmallConn {
	h.T.Helper()
	conn, err := net.Dial("tcp", h.Addr)
	if err != nil {
		h.T.Fatal(err)
	}
	c := edgetest.SmallConn{T: h.T, Conn: conn}
	c.Send(head + " HTTP/1.1\r\nHost: h\r\n" + strings.Join(append(headers, "\r\n"), "\r\n"))
	return c
}
