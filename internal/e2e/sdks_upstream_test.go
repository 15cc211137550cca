package e2e_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/adapters/provider/providertest"
)

// sdkKey is what the libraries show; it must stand nowhere but at the upstream.
const sdkKey = "sk-e2e-7Qm2vY0pXo"

// answer is what the upstream says to one request.
type answer struct {
	status int
	body   []byte
	fails  bool // the library gives no message for it
	packed bool // gzip
	after  behind
	header map[string]string
}

// behind is what comes behind an answer's body.
type behind int

const (
	whole  behind = iota
	broken        // the connection breaks off
	held          // nothing, until the client leaves
	silent        // there is no answer at all, until the client leaves
)

// recording is a recorded stream, as it came.
func recording(t testing.TB, name string) answer {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(providertest.Dir(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: http.StatusOK, body: body}
}

// part is the first part of a recorded stream, in eighths; it ends within a line.
func part(t testing.TB, name string, eighths int, after behind) answer {
	t.Helper()
	a := recording(t, name)
	a.body, a.after, a.fails = a.body[:len(a.body)*eighths/8], after, true
	return a
}

// refused is an error as the providers say them. The library may come again at once.
func refused(status int, body string) answer {
	return answer{status: status, body: []byte(body), fails: true, header: map[string]string{"Retry-After-Ms": "5"}}
}

// overloaded is a part of a recorded stream of Anthropic's, behind which comes an error.
func overloaded(t testing.TB, name string) answer {
	t.Helper()
	a := part(t, name, 5, whole)
	a.body = append(a.body[:bytes.LastIndex(a.body, []byte("\n\n"))+2:len(a.body)],
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"...)
	return a
}

// models is the upstream of all cases. A path begins with the name of its case.
type models struct {
	mu      sync.Mutex
	answers map[string][]answer
	faults  []error
}

// start serves until the test ends, and returns the address.
func (m *models) start(t testing.TB) string {
	t.Helper()
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return srv.URL
}

// expect names the cases and their runs, and takes their answers.
func (m *models) expect(way, script string, cases []sdkCase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range cases {
		c := &cases[i]
		if c.Run == "named" {
			c.Run = way + "_" + script + "_" + c.Name
		}
		c.Name = script + "-" + c.Name
		m.answers[c.Name] = slices.Clone(c.answers)
	}
}

// next returns the answer to a case's next request.
func (m *models) next(r *http.Request) (answer, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	left := m.answers[name]
	if len(left) == 0 {
		errs, left = append(errs, fmt.Errorf("%s: a request too many: %s", name,
			r.URL.Path)), []answer{{status: http.StatusGone}}
	}
	if h := fmt.Sprint(r.Header); !strings.Contains(h, sdkKey) || strings.Contains(h, "Agentstream") {
		errs = append(errs, fmt.Errorf("%s: header of the request: %s", name, h))
	}
	m.answers[name] = left[1:]
	m.faults = append(m.faults, errs...)
	return left[0], errors.Join(errs...)
}

// ServeHTTP answers in small pieces.
func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	a, err := m.next(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusGone)
		return
	}
	if a.after == silent {
		<-r.Context().Done()
		return
	}
	typ := "text/event-stream; charset=utf-8"
	if a.status != http.StatusOK {
		typ = "application/json"
	}
	w.Header().Set("Content-Type", typ)
	for name, v := range a.header {
		w.Header().Set(name, v)
	}
	if a.packed {
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(a.status)
	a.stream(w)
	switch a.after {
	case broken:
		panic(http.ErrAbortHandler)
	case held:
		<-r.Context().Done()
	}
}

// stream writes the body in pieces, until one does not get through.
func (a *answer) stream(w http.ResponseWriter) {
	flush := http.NewResponseController(w).Flush
	out := io.Writer(w)
	if a.packed {
		z := gzip.NewWriter(w)
		defer z.Close()
		to := flush
		out, flush = z, func() error { return errors.Join(z.Flush(), to()) }
	}
	for rest := a.body; len(rest) > 0; {
		n := min(len(rest), 1500)
		if _, err := out.Write(rest[:n]); err != nil || flush() != nil {
			return
		}
		rest = rest[n:]
	}
}

// left says which answers nobody asked for, and what was wrong with requests.
func (m *models) left() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := m.faults
	for name, list := range m.answers {
		if len(list) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d answers that nobody asked for", name, len(list)))
		}
	}
	return errs
}
