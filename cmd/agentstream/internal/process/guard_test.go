package process

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestGuard: a name that was pointed here, and a page of another origin, get nothing, whatever they ask.
func TestGuard(t *testing.T) {
	loopback, open := &net.TCPAddr{IP: net.IPv6loopback, Port: 8081}, &net.TCPAddr{IP: net.IPv4zero, Port: 8081}
	all := func(host string) [2]int { return [2]int{ask(loopback, "GET", host), ask(open, "GET", host)} }
	for host, want := range map[string][2]int{
		"localhost": {200, 200}, "LOCALHOST:8081": {200, 200}, "localhost.": {200, 200}, "127.0.0.1:8081": {200, 200},
		"127.9.9.9":  {200, 200},
		"[::1]:8081": {200, 200}, "[::ffff:127.0.0.1]": {200, 200}, "": {200, 200}, "named.example:8081": {200, 200},
		"NAMED.example": {200, 200},
		"10.1.2.3:8081": {403, 200}, "[fe80::1%25eth0]:8081": {403, 200}, "[fe80::1]": {403, 200},
		"0.0.0.0": {403, 200}, "persist:8081": {403, 200},
		"edge.prod.svc:8081": {403, 200}, "edge.prod.svc.cluster.local": {403, 200}, "host.docker.internal": {403, 200},
		"evil.example": {403, 403}, "evil.example:8081": {403, 403}, "localhost.evil.example": {403, 403},
		"127.0.0.1.evil.example": {403, 403},
		"127.0.0.1.nip.io:8081":  {403, 403}, "notnamed.example": {403, 403}, "named.example.evil.example": {403, 403},
		"2130706433": {403, 200},
		"127.1":      {403, 403}, "evil.example#localhost": {403, 403}, "evil.example:80@localhost": {403, 403},
		"svc.example": {403, 403},
	} {
		if got := all(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
	for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS", "DELETE"} {
		for _, tt := range []struct {
			name, value string
			want        int
		}{
			{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403}, {"Sec-Fetch-Site", "other", 403},
			{"Sec-Fetch-Site", "none", 200}, {"Sec-Fetch-Site", "same-origin", 200},
			{"Origin", "https://evil.example", 403}, {"Origin", "null", 403}, {"Origin", "http://localhost:8080", 403},
			{"Origin", "http://localhost:8081", 200},
		} {
			if got := ask(loopback, method, "localhost:8081", tt.name, tt.value); got != tt.want {
				t.Errorf("%s with %s %s: %d, want %d", method, tt.name, tt.value, got, tt.want)
			}
		}
	}
}

func ask(at net.Addr, method, host string, headers ...string) int {
	h := Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), at,
		"named.example")
	r := httptest.NewRequest(method, "/metrics", nil)
	r.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
