package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// firstByte is how long the first event of a stream may take: an edge sends it at once.
const firstByte = 3 * time.Second

// large is a body that an edge takes, and that proxies refuse whose bound nobody has set.
const large = 2 << 20

// tapPath is a stream whose first event comes at once, whatever is there.
const tapPath = "/v1/agent/events/stream?from=new"

// front looks at what is before the edges.
func (x *examination) front(ctx context.Context, public, token string, patience time.Duration) {
	u, err := url.Parse(public)
	if err != nil || u.Host == "" {
		x.find("--public-url is no URL; mend: --public-url=https://HOST")
		return
	}
	f := &front{examination: x, base: strings.TrimSuffix(public, "/"), token: token,
		client: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableCompression: true, ForceAttemptHTTP2: true}}}
	defer f.client.CloseIdleConnections()
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" &&
		(ip == nil || !ip.IsLoopback()) {
		x.find("%s is not over TLS: tokens are sent in clear; mend: --tls-cert, or TLS in front", public)
	}
	if !f.isReachable(ctx) {
		return
	}
	f.stream(ctx, patience)
	f.socket(ctx)
	f.body(ctx)
	f.operators(ctx)
}

type front struct {
	*examination
	base, token string
	client      *http.Client
}

// newRequest returns a request of a client with the token.
func (f *front) newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, f.base+path, body)
	if err != nil {
		return nil, err
	}
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	return r, nil
}

func (f *front) request(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := f.newRequest(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept-Encoding", "gzip")
	if body != nil {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	return f.client.Do(r)
}

// isReachable asks for health, and looks at the clock and the certificate that answer.
func (f *front) isReachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before := time.Now()
	resp, err := f.request(ctx, http.MethodGet, "/healthz", nil)
	if err != nil {
		f.find("%s cannot be reached: %v; mend: --public-url, the balancer, or its certificate", f.base, errors.Unwrap(err))
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.find("%s/healthz answers %d; mend: the balancer must pass all paths to the edges", f.base, resp.StatusCode)
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		f.clock(f.base, at, before, time.Now(), time.Second)
	}
	if resp.TLS != nil {
		f.expiry("the certificate of "+f.base, resp.TLS.PeerCertificates[0].NotAfter, "renew it")
	}
	return resp.StatusCode == http.StatusOK
}

// stream opens one, times its first event, and holds it open.
func (f *front) stream(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, firstByte+patience)
	defer cancel()
	late := time.AfterFunc(firstByte, cancel)
	resp, err := f.request(ctx, http.MethodGet, tapPath, nil)
	if err != nil {
		f.find("a stream through %s does not begin within %v: what is in front buffers answers; mend: proxy_buffering off (nginx), and its like", f.base, firstByte)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.find("a stream through %s is answered %d; mend: --token with the scope read", f.base, resp.StatusCode)
		return
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" {
		f.find("streams through %s are compressed (%s), which holds events back; mend: gzip off for text/event-stream",
			f.base, coding)
		return
	}
	in := bufio.NewReader(resp.Body)
	if _, err := in.ReadByte(); err != nil || !late.Stop() {
		f.find("the first event of a stream through %s does not come within %v: what is in front buffers answers; mend: proxy_buffering off (nginx), and its like", f.base, firstByte)
		return
	}
	began := time.Now()
	_, err = io.Copy(io.Discard, in)
	if ctx.Err() == nil {
		f.find("a stream through %s is cut after %v without events (%v): an idle time-out in front is short; mend: proxy_read_timeout and its like above 60s, or --keep-alive below it",
			f.base, time.Since(began).Round(100*time.Millisecond), err)
	}
}

// socket asks for a WebSocket.
func (f *front) socket(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstByte)
	defer cancel()
	r, err := f.newRequest(ctx, http.MethodGet, tapPath, nil)
	if err != nil {
		return
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		r.Header.Set(name, value)
	}
	one := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	resp, err := one.Do(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		f.find("no WebSocket opens through %s; mend: pass the headers Upgrade and Connection on, over HTTP/1.1", f.base)
	}
}

// body sends more than proxies take by default. No run is written: the path names none.
func (f *front) body(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := f.request(ctx, http.MethodPost, "/v1/agent/runs/a.b/events", bytes.NewReader(make([]byte, large)))
	if err != nil {
		return // an edge that has refused already does not read it
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusRequestEntityTooLarge {
		f.find("%s refuses bodies of %d MiB; mend: client_max_body_size and its like at 9m", f.base, large>>20)
	}
}

// operators asks for what only operators may see.
func (f *front) operators(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		resp, err := f.request(ctx, http.MethodGet, path, nil)
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			f.find("%s%s is open to clients; mend: the balancer must not lead to --admin-listen", f.base, path)
		}
	}
}
