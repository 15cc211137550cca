package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// message is what a client reads of one event.
type message struct{ event, data, id string }

// parse reads events as a client does (WHATWG HTML, section 9.2.6); comments and hints are given as they stand.
func parse(text string) (list []message, rest []string) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	var m message
	seen := false
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			m.event = value
		case "id":
			m.id = value
		case "data":
			m.data, seen = m.data+value+"\n", true
		case "":
			if line == "" && seen {
				m.data = strings.TrimSuffix(m.data, "\n")
				list = append(list, m)
			}
			if line == "" {
				m, seen = message{}, false
			}
			if line != "" {
				rest = append(rest, line)
			}
		default:
			rest = append(rest, line)
		}
	}
	return list, rest
}

// TestFormats has what each choice of a format is on the wire.
func TestFormats(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *Format
		f    dialect.Frame
		want string
	}{
		{"plain", Plain, frame("a", "{}", "1"), "event: a\ndata: {}\nid: 1\n\n"},
		{"a value's own space", Plain, frame("a", " x", "1"), "event: a\ndata:  x\nid: 1\n\n"},
		{"id first", &Format{IDFirst: true}, frame("a", "{}", "1"), "id: 1\nevent: a\ndata: {}\n\n"},
		{"id first, no token", &Format{IDFirst: true}, frame("a", "{}", ""), "event: a\ndata: {}\n\n"},
		{"a text that is no JSON", Plain, frame("", "[DONE]", ""), "data: [DONE]\n\n"},
		{"line breaks", Plain, frame("a\nb", "x\r\ny", "1\n2"), "event: a b\ndata: x  y\nid: 1 2\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(tt.m.Append(nil, tt.f)); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			got, _ := parse(tt.want)
			one := strings.NewReplacer("\n", " ", "\r", " ")
			want := message{one.Replace(string(tt.f.Event)), one.Replace(string(tt.f.Data)), one.Replace(string(tt.f.Token))}
			if len(got) != 1 || got[0] != want {
				t.Errorf("a client reads %q, want %q", got, want)
			}
		})
	}
}

// TestComment: a comment is no event for a client, whatever it says, and goes out among the frames.
func TestComment(t *testing.T) {
	for _, text := range []string{"up to 7", "a\nb", "data: x\n\ndata: y", "", strings.Repeat("x", 90<<10)} {
		said := dialect.Frame{Comment: true, Data: []byte(text), Event: []byte("a"), Token: []byte("1")}
		ways(t, &Format{NoRetry: true}, func(s transport.Sink) {
			if err := errors.Join(s.Write([]dialect.Frame{frame("a", "{}", "1"), said, frame("b", "[]", "2")})); err != nil {
				t.Error(err)
			}
			if _, err := s.Flush(); err != nil {
				t.Error(err)
			}
		}, func(t *testing.T, _ *http.Response, body string) {
			list, rest := parse(body)
			if want := []message{{"a", "{}", "1"}, {"b", "[]", "2"}}; !slices.Equal(list, want) || len(rest) != 1 ||
				!strings.HasPrefix(rest[0], ":") {
				t.Errorf("%q is read as %q, with %.80q", text, list, rest)
			}
		})
	}
}

// FuzzFormats holds that one frame is one event for a reader, in every format.
func FuzzFormats(f *testing.F) {
	f.Add("text", "a\nb", "1", uint8(7))
	f.Add("0", "\x00", "0", uint8(15))
	f.Add("x\n\ny", " a\r\rb\x00", "\x00\r\n", uint8(15))
	f.Fuzz(func(t *testing.T, event, data, token string, bits uint8) {
		m := &Format{IDFirst: bits&1 > 0}
		got := string(m.Append(nil, frame(event, data, token)))
		if strings.ContainsAny(got, "\r\x00") {
			t.Fatalf("%q", got)
		}
		list, rest := parse(got)
		if len(list) != 1 || len(rest) > 0 {
			t.Fatalf("not one event: %q", got)
		}
		want := strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")
		if list[0].data != want.Replace(data) {
			t.Errorf("%q is read as %q", data, list[0].data)
		}
	})
}

// ways serves a stream in a format over each way there is and gives a response of each. say gets the sink.
func ways(t *testing.T, m *Format, say func(transport.Sink),
	check func(t *testing.T, resp *http.Response, body string)) {
	t.Helper()
	for _, way := range []string{"direct", "HTTP/1.1", "HTTP/2.0"} {
		t.Run(way, func(t *testing.T) {
			tr, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var s transport.Sink
				var err error
				if way == "direct" {
					s, err = tr.OpenDirect(w, r, m, func(error) {})
				} else {
					s, err = tr.Open(w, m)
				}
				if err != nil {
					t.Error(err)
					return
				}
				say(s)
				if err := s.CloseWith(transport.End{Clean: true}); err != nil {
					t.Error(err)
				}
			}))
			srv.Config.Protocols = new(http.Protocols)
			srv.Config.Protocols.SetHTTP1(true)
			srv.Config.Protocols.SetUnencryptedHTTP2(true)
			srv.Start()
			defer srv.Close()
			ct := &http.Transport{Protocols: new(http.Protocols)}
			ct.Protocols.SetHTTP1(way != "HTTP/2.0")
			ct.Protocols.SetUnencryptedHTTP2(way == "HTTP/2.0")
			defer ct.CloseIdleConnections()
			resp, err := (&http.Client{Transport: ct}).Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			check(t, resp, string(b))
		})
	}
}

// TestFormatOverEachWay has a format's headers, hint, frames and keep-alives, the large ones among them.
func TestFormatOverEachWay(t *testing.T) {
	big := strings.Repeat("é ", 90<<10)
	for _, tt := range []struct {
		name  string
		m     *Format
		hint  bool
		alive string
	}{
		{"plain", &Format{}, true, ": keepalive\n\n"},
		{"id first", &Format{IDFirst: true}, true, ": keepalive\n\n"},
		{"no hint", &Format{NoRetry: true}, false, ": keepalive\n\n"},
	} {
		tt.m.Header = http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}, "x-protocol": {"a", "b"},
			"X-Accel-Buffering": nil}
		fs := []dialect.Frame{frame("a", "{\n}", "1"), frame("big", big, "2"), frame("", big, ""), frame("z", "[]", "3")}
		t.Run(tt.name, func(t *testing.T) {
			ways(t, tt.m, func(s transport.Sink) {
				if err := errors.Join(s.KeepAlive(), s.Write(fs[:2]), s.Write(fs[2:])); err != nil {
					t.Error(err)
				}
				if n, err := s.Flush(); n == 0 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
				if err := s.KeepAlive(); err != nil {
					t.Error(err)
				}
			}, func(t *testing.T, resp *http.Response, body string) {
				if h := resp.Header; h.Get("Content-Type") != "text/event-stream; charset=utf-8" || len(h["X-Protocol"]) != 2 ||
					h["X-Accel-Buffering"] != nil || h.Get("Cache-Control") != "no-store, no-transform" {
					t.Errorf("%v", h)
				}
				if tt.hint {
					hint, rest, _ := strings.Cut(body, "\n\n")
					if body = rest; !strings.HasPrefix(hint, "retry: ") {
						t.Errorf("begins with %.40q", hint)
					}
				}
				want := []byte(tt.alive)
				for _, f := range fs {
					want = tt.m.Append(want, f)
				}
				if want = append(want, tt.alive...); body != string(want) {
					t.Errorf("%d bytes, want %d; begins with %.200q", len(body), len(want), body)
				}
			})
		})
	}
}

// TestEncodingOfAFormat holds that what is built for many watchers of a format is built once, and read the same.
func TestEncodingOfAFormat(t *testing.T) {
	m := &Format{Name: "own", IDFirst: true, NoRetry: true}
	if m.Encoding() != m.Encoding() || m.Encoding() == Plain.Encoding() || m.Encoding().Name != "own" ||
		(*Format)(nil).Encoding() != Plain.Encoding() {
		t.Fatal("an encoding is not its format's")
	}
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	sinks := make(chan *Direct, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := tr.OpenDirect(w, r, m, func(error) {})
		if err != nil {
			t.Error(err)
			return
		}
		sinks <- d
	}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	d := wait(t, sinks, "sink")
	if d.Encoding() != m.Encoding() {
		t.Error("a connection takes another form")
	}
	enc := m.Encoding()
	b := enc.Finish(enc.Append(enc.Reset(nil), frame("a", "{}", "1")))
	if n, err := d.TryWrite(b); n < len(b) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if rest, err := d.TryKeepAlive(); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := errors.Join(d.Rest(b), d.CloseWith(transport.End{Clean: true})); err != nil {
		t.Error(err)
	}
	const event = "id: 1\nevent: a\ndata: {}\n\n"
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != event+": keepalive\n\n"+event {
		t.Errorf("%q, %v", got, err)
	}
}

// chunks takes a body of HTTP/1.1 apart.
func chunks(t *testing.T, raw []byte) (list []string) {
	t.Helper()
	for len(raw) > 0 {
		head, rest, ok := bytes.Cut(raw, []byte("\r\n"))
		n, err := strconv.ParseInt(string(head), 16, 32)
		if !ok || err != nil || len(rest) < int(n)+2 {
			t.Fatalf("not a chunk: %.40q", raw)
		}
		if n > 0 {
			list = append(list, string(rest[:n]))
		}
		raw = rest[n+2:]
	}
	return list
}

func dial(t *testing.T, srv *httptest.Server, request string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStreamOfAPost has streams that answer a request with a body, in each way in which one comes.
func TestStreamOfAPost(t *testing.T) {
	large := strings.Repeat("b", 200<<10)
	for _, tt := range []struct{ name, request, body string }{
		{"length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", "body"},
		{"empty", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", ""},
		{"chunks", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\nTrailer: x\r\n\r\n", "body"},
		{"expects to continue", "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
			"body"},
		{"GET", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", "body"},
		{"large", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(len(large)) + "\r\n\r\n" + large, large},
		{"with more behind it", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET / HTTP/1.1\r\n\r\n", "body"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				s := direct(t, cfg)
				c := dial(t, s.srv, tt.request)
				if got := wait(t, s.bodies, "body"); got != tt.body {
					t.Errorf("body of %d bytes, want %d", len(got), len(tt.body))
				}
				d := wait(t, s.sinks, "sink")
				r := bufio.NewReader(c)
				for range 3 { // the client hears what is written, at once, and nobody takes it for gone
					if err := errors.Join(d.Write([]dialect.Frame{frame("a", "{}", "1")}), flushDirect(d)); err != nil {
						t.Fatal(err)
					}
				}
				resp, err := http.ReadResponse(r, nil)
				if err == nil && resp.StatusCode == http.StatusContinue {
					resp, err = http.ReadResponse(r, nil)
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%v, %v", resp, err)
				}
				done := make(chan error, 1)
				go func() { done <- d.CloseWith(transport.End{Clean: true}) }()
				if got, err := events(t, resp); err != nil || got != strings.Repeat("event: a\ndata: {}\nid: 1\n\n", 3) {
					t.Errorf("%q, %v", got, err)
				}
				if err := wait(t, done, "end"); err != nil || len(s.gone) > 0 {
					t.Errorf("end: %v, %d gone", err, len(s.gone))
				}
			})
		})
	}
	t.Run("client leaves", func(t *testing.T) {
		both(t, func(t *testing.T, cfg Config) {
			s := direct(t, cfg)
			c := dial(t, s.srv, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
			d := wait(t, s.sinks, "sink")
			c.Close()
			if err := wait(t, s.gone, "gone"); !errors.Is(err, dialect.ErrClientGone) {
				t.Error(err)
			}
			_ = d.CloseWith(transport.End{})
		})
	})
}

// TestPostOverHTTP2 has the same through the HTTP server.
func TestPostOverHTTP2(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if _, derr := tr.OpenDirect(w, r, nil, nil); err != nil || !errors.Is(derr, ErrNotDirect) {
			t.Errorf("%v, %v", err, derr)
		}
		s, err := tr.Open(w, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(s.Write([]dialect.Frame{frame("", string(b), "")}), flush(s),
			s.CloseWith(transport.End{Clean: true})); err != nil {
			t.Error(err)
		}
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	ct := &http.Transport{Protocols: new(http.Protocols)}
	ct.Protocols.SetUnencryptedHTTP2(true)
	defer ct.CloseIdleConnections()
	resp, err := (&http.Client{Transport: ct}).Post(srv.URL, "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := events(t, resp); err != nil || got != "data: body\n\n" {
		t.Errorf("%q, %v", got, err)
	}
}
