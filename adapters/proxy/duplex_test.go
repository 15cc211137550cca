package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// TestAnswerOvertakesTheRequest: an answer that is over before the request has been read to its end leaves the
// connection whole, for the next request on it.
func TestAnswerOvertakesTheRequest(t *testing.T) {
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "early")
		w.(http.Flusher).Flush()
		_, _ = io.Copy(io.Discard, req.Body)
	}))
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	answers := bufio.NewReader(conn)
	for i := range 20 {
		if _, err := io.WriteString(conn, "POST /up/v1/other HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != "early" {
			t.Fatalf("request %d: %q %v", i, got, err)
		}
		time.Sleep(5 * time.Millisecond) // for the handler to be over, or to wait for what is sent now
		if _, err := io.WriteString(conn, "0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
}
