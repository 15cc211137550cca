package proxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/proxy"
)

// TestRepeatedCredentials: whatever a request authenticates with, and wherever the answer repeats it, no event has it.
// The client has the answer as it is.
func TestRepeatedCredentials(t *testing.T) {
	const secret = "s3cr3t-0123456789abcdef"
	basic, err := http.NewRequest(http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	basic.SetBasicAuth("somebody", secret)
	token := strings.TrimPrefix(basic.Header.Get("Authorization"), "Basic ")
	escaped := strings.NewReplacer("s", `\u0073`, "-", `\u002d`).Replace(secret)
	frames := strings.SplitAfter(answer("msg_1", "so far"), "\n\n")
	begun := strings.Join(frames[:3], "")
	answers := map[string]struct {
		status int
		body   string
	}{
		"error":         {401, `{"error":{"message":"bad key ` + secret + `"}}`},
		"escaped error": {401, `{"error":{"message":"bad key ` + escaped + `"}}`},
		"upper case":    {401, `{"error":{"message":"bad key ` + strings.ToUpper(secret) + `"}}`},
		"hexadecimal":   {401, fmt.Sprintf(`{"error":{"message":"bad key %x or %X"}}`, secret, secret)},
		"escaped twice": {401, `{"error":{"message":"bad key ` + url.QueryEscape(strings.ReplaceAll(url.QueryEscape(
			strings.ReplaceAll(secret, "-", "%2D")), "3", "%33")) + `"}}`},
		"error in HTML": {502, "<html>\nkey=" + url.QueryEscape(secret) + "</html>"},
		"long error": {500, `{"error":{"message":"` +
			strings.Repeat("x", 64<<10-len(`{"error":{"message":"`)-10) + secret + `"}}`},
		"clipped reason": {500, `{"error":{"message":"` + strings.Repeat("x", 1014) + secret + `"}}`},
		"error in a stream": {200, begun + `data: {"type":"error","error":{"type":"e","message":"` + escaped + `"}}` +
			"\n\n"},
		"unknown event": {200, begun + `data: {"type":"dream","of":"` + secret + `"}` + "\n\n" +
			strings.Join(frames[3:], "")},
		"bad frame": {200, begun + `data: {"type":"` + secret + "\n\n" + strings.Join(frames[3:], "")},
		"basic":     {401, `{"error":{"message":"` + token + `"}}`},
		"pieces": {200, answer("msg_1", "it is ", secret[:1], secret[1:4],
			escaped[len(`\u0073`)+3:len(escaped)-3], secret[len(secret)-3:], " yes")},
		"whole": {200, answer("msg_1", "it is "+escaped)},
	}
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := answers[req.Header.Get("X-Case")]
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	for name, a := range answers {
		for _, c := range [][]string{
			{"", "Authorization", "Bearer " + secret}, {"", "X-Api-Key", secret}, {"", "Cookie", "a=b; session=" + secret},
			{"", "Authorization", "Basic " + token}, {"", "X-Some-Vendor", secret}, {"", "Cf-Access-Client-Secret", secret},
			{"?key=" + secret}, {"?subscription=" + secret},
		} {
			resp, got := r.post("/v1/messages"+c[0], `{"messages":[{"role":"user","content":"mine is `+secret+`"}]}`,
				append(c[1:], "X-Case", name)...)
			if string(got) != a.body {
				t.Errorf("%s: the client got %.200q", name, got)
			}
			for _, e := range r.ended(resp.Header.Get(proxy.HeaderRun)) {
				var v any
				if err := json.Unmarshal(e.Payload, &v); err != nil {
					t.Fatal(err)
				}
				text := fmt.Sprint(v)
				if hasAny(text, secret[:10], strings.ToUpper(secret[:10]), fmt.Sprintf("%x", secret[:10]),
					fmt.Sprintf("%X", secret[:10])) || name == "basic" && c[len(c)-1] == "Basic "+token &&
					strings.Contains(text, token) {
					t.Errorf("%s, %v: %.300s", name, c, text[max(0, strings.Index(text, secret[:10])-100):])
				}
			}
		}
	}
	if strings.Contains(r.said.String(), secret) {
		t.Error("the credential is logged")
	}
}

func hasAny(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// TestPaths: no path leads out of the upstream's base, however it is written.
func TestPaths(t *testing.T) {
	up := &seen{serve: says("x")}
	r := start(t, up)
	based := startAt(t, map[string]string{"up": r.upstreams["up"] + "/tenant/a"})
	for target, want := range map[string]string{
		"/v1/models":                   "/tenant/a/v1/models",
		"//v1//models":                 "/tenant/a/v1/models",
		"/v1/./models/":                "/tenant/a/v1/models/",
		"/v1/../v2/models":             "/tenant/a/v2/models",
		"/../../secret":                "/tenant/a/secret",
		"/%2e%2e/%2E./secret":          "/tenant/a/secret",
		"/v1/%2e":                      "/tenant/a/v1/",
		"/v1/files/a%2Fb":              "/tenant/a/v1/files/a%2Fb",
		"/v1/files/..a/b..":            "/tenant/a/v1/files/..a/b..",
		"/..":                          "/tenant/a/",
		"/..%2f..%2fsecret":            "",
		"/v1/..%5c..%5csecret":         "",
		`/v1/..\..\secret`:             "",
		"/%252e%252e/secret":           "",
		"/%25252e%25252e%25252fsecret": "",
		"/..;/secret":                  "",
		"/v1/..;x=1/secret":            "",
		"/v1/%2e%2e;/secret":           "",
		"/v1/a%00b":                    "",
		"/%c0%ae%c0%ae/secret":         "",
		"/v1/%0d%0aHost:x":             "",
		"http://evil.example/secret":   "",
	} {
		before := len(up.all())
		status := rawRequest(t, based.url, target)
		got := ""
		if all := up.all(); len(all) > before {
			got = all[before].RequestURI
		}
		if got != want || want == "" && status != http.StatusBadRequest || want != "" && status != http.StatusOK {
			t.Errorf("%s: status %d, the upstream saw %q, want %q", target, status, got, want)
		}
	}
}

// TestManyPaths: whatever a path is put together from, a server that unescapes it again, and takes backslashes and
// parameters as some do, finds nothing outside of the base.
func TestManyPaths(t *testing.T) {
	up := &seen{serve: says("x")}
	r := start(t, up)
	based := startAt(t, map[string]string{"up": r.upstreams["up"] + "/tenant/a"})
	parts := []string{"/", "/", "//", "..", ".", "%2e", "%2E", "%252e", "%25252e", "%2f", "%252f", "%5c", "%255C", `\`, ";", ";a=b",
		"%3b", "a", "v1", "%61", "%00", "%09", "%c0%ae", "?", "%3f", "%23", "%", "%2", "%u002e", "…"}
	random := rand.New(rand.NewPCG(7, 7))
	passed := 0
	for range 3000 {
		target := "/"
		for range 1 + random.IntN(9) {
			target += parts[random.IntN(len(parts))]
		}
		before := len(up.all())
		status := rawRequest(t, based.url, target)
		all := up.all()
		if len(all) == before {
			if status != http.StatusBadRequest {
				t.Errorf("%q: status %d", target, status)
			}
			continue
		}
		passed++
		got, _, _ := strings.Cut(all[before].RequestURI, "?")
		for range 4 {
			if !strings.HasPrefix(meanest(got)+"/", "/tenant/a/") {
				t.Fatalf("%q: the upstream saw %q, which may be %q", target, all[before].RequestURI, meanest(got))
			}
			plain, err := url.PathUnescape(got)
			if err != nil {
				break
			}
			got = plain
		}
	}
	if passed < 300 {
		t.Errorf("%d of 3000 paths were handed on", passed)
	}
}

// meanest is a path as the server reads it that makes the most of it.
func meanest(p string) string {
	segments := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return path.Clean(strings.Join(segments, "/"))
}

// rawRequest sends a target as it is.
func rawRequest(t *testing.T, base, target string) int {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
