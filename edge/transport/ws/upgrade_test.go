package ws

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// TestRefusals has requests that are no upgrade: the edge's own answer follows.
func TestRefusals(t *testing.T) {
	s := server(t, Config{}, nil)
	for _, tt := range []struct {
		name, from, to string // replaced in the upgrade
		err            error
	}{
		{"plain GET", "Upgrade: websocket\r\n", "", ErrNotUpgrade},
		{"another protocol", "Upgrade: websocket", "Upgrade: h2c", ErrNotUpgrade},
		{"no connection token", "keep-alive, Upgrade", "keep-alive", ErrNotUpgrade},
		{"POST", "GET /", "POST /", ErrNotUpgrade},
		{"HTTP/1.0", "HTTP/1.1", "HTTP/1.0", ErrNotUpgrade},
		{"version 8", "Version: 13", "Version: 8", ErrVersion},
		{"no version", "Sec-WebSocket-Version: 13\r\n", "", ErrVersion},
		{"two versions", "Version: 13", "Version: 13\r\nSec-WebSocket-Version: 13", ErrVersion},
		{"no key", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", ErrNotUpgrade},
		{"two keys", "Key: dGhl", "Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key: dGhl", ErrNotUpgrade},
		{"short key", "dGhlIHNhbXBsZSBub25jZQ==", "dGhl", ErrNotUpgrade},
		{"key that is no base64", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZ===", ErrNotUpgrade},
		{"other subprotocols", "other, test-v1", "other", ErrSubprotocol},
		{"subprotocol in other case", "other, test-v1", "TEST-V1", ErrSubprotocol},
		{"no subprotocol in the list", "other, test-v1", "", ErrSubprotocol},
		{"body", "Host: x\r\n", "Host: x\r\nContent-Length: 3\r\n", ErrNotUpgrade},
		{"chunked body", "Host: x\r\n", "Host: x\r\nTransfer-Encoding: chunked\r\n", ErrNotUpgrade},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := strings.Replace(upgrade, tt.from, tt.to, 1)
			if req == upgrade {
				t.Fatal("nothing is replaced")
			}
			conn, err := net.Dial("tcp", s.srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			body := "abc"
			if strings.Contains(req, "chunked") {
				body = "3\r\nabc\r\n0\r\n\r\n"
			}
			fmt.Fprintf(conn, "%s\r\n%s", req, body)
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			answer, _ := io.ReadAll(resp.Body)
			if err := wait(t, s.errs, "refusal"); !errors.Is(err, tt.err) || !errors.Is(err, dialect.ErrBadRequest) {
				t.Errorf("%v, want %v", err, tt.err)
			}
			if resp.StatusCode != http.StatusBadRequest || !strings.HasPrefix(string(answer), `{"error"`) ||
				resp.Header.Get("Sec-Websocket-Accept") != "" {
				t.Errorf("%s %q %v", resp.Status, answer, resp.Header)
			}
		})
	}
	t.Run("HTTP/2", func(t *testing.T) {
		r := httptest.NewRequest("GET", "/", nil)
		r.ProtoMajor, r.ProtoMinor, r.Proto = 2, 0, "HTTP/2.0"
		if _, err := s.tr.Open(httptest.NewRecorder(), r, Options{}); !errors.Is(err, ErrNotUpgrade) {
			t.Error(err)
		}
	})
	t.Run("a response that cannot be taken over", func(t *testing.T) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(upgrade + "\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if _, err := s.tr.Open(w, r, Options{Subprotocols: []string{protocol}}); !errors.Is(err,
			http.ErrNotSupported) || w.Body.Len() > 0 {
			t.Error(err)
		}
	})
}

// TestAnswer holds the handshake to the example of RFC 6455 §1.3.
func TestAnswer(t *testing.T) {
	s := server(t, Config{}, nil)
	for _, offered := range []string{"Sec-WebSocket-Protocol: other, test-v1\r\n", ""} {
		conn, err := net.Dial("tcp", s.srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s\r\n", strings.Replace(upgrade, "Sec-WebSocket-Protocol: other, test-v1\r\n", offered, 1))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if offered != "" {
			want = protocol
		}
		if h := resp.Header; h.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
			h.Get("Sec-Websocket-Protocol") != want ||
			!strings.EqualFold(h.Get("Upgrade"), "websocket") || !strings.EqualFold(h.Get("Connection"), "upgrade") ||
			h.Get("X-Request-Id") != "req_1" {
			t.Errorf("%v", h)
		}
		conn.Close()
		sink := wait(t, s.sinks, "sink")
		if err := wait(t, s.closed, "Closed"); !errors.Is(err, dialect.ErrClientGone) {
			t.Error(err)
		}
		if err := sink.CloseWith(transport.End{}); !errors.Is(err, dialect.ErrClientGone) && err != nil {
			t.Error(err)
		}
	}
}
