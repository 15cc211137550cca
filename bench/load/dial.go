package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// server is where the load goes: an address, and what every request to it begins with.
type server struct {
	secure bool
	addr   string // host:port
	host   string // as in the URL
	token  string
	tls    *tls.Config
	client *http.Client // for what is not measured
}

const dialTimeout = 30 * time.Second

func newServer(cfg Config) (*server, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: url: %v", ErrConfig, err)
	}
	s := &server{secure: u.Scheme == "https", host: u.Host, token: cfg.Token, tls: cfg.TLS.Clone()}
	if s.tls == nil {
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	s.tls.NextProtos = []string{"http/1.1"} // a connection is what is measured: no HTTP/2
	// All requests take the same way as what is measured, which knows no proxy.
	s.client = &http.Client{Timeout: dialTimeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: beginners, TLSClientConfig: s.tls}}
	port := u.Port()
	if port == "" {
		port = map[bool]string{false: "80", true: "443"}[s.secure]
	}
	s.addr = net.JoinHostPort(u.Hostname(), port)
	return s, nil
}

func (s *server) url(path string) string {
	if s.secure {
		return "https://" + s.host + path
	}
	return "http://" + s.host + path
}

// dial opens one connection.
func (s *server) dial(ctx context.Context) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	if s.secure {
		td := &tls.Dialer{NetDialer: d, Config: s.tls}
		return td.DialContext(ctx, "tcp", s.addr)
	}
	return d.DialContext(ctx, "tcp", s.addr)
}

// head begins a request of HTTP/1.1 (RFC 9112); the caller adds header lines and the empty line.
func (s *server) head(method, path string) string {
	h := method + " " + path + " HTTP/1.1\r\nHost: " + s.host + "\r\nUser-Agent: agentstream-bench\r\n"
	if s.token != "" {
		h += "Authorization: Bearer " + s.token + "\r\n"
	}
	return h
}

// pathOf is the resource of a run; names of runs are tokens and need no escaping.
func pathOf(run string) string { return "/v1/agent/runs/" + run }

// exchange sends a request that opens a stream and reads the head of the answer. What came behind the
// head is in the reader.
func exchange(conn net.Conn, request string, want int) (*http.Response, *bufio.Reader, error) {
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, nil, err
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return nil, nil, err
	}
	// Small: it lives only until the stream has begun, but there may be thousands at a time.
	r := bufio.NewReaderSize(conn, 1024)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("response: %w", err)
	}
	if resp.StatusCode != want {
		defer resp.Body.Close()
		return nil, nil, refusal(resp)
	}
	return resp, r, conn.SetDeadline(time.Time{})
}
