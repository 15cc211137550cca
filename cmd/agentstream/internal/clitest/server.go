package clitest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/schema"
)

// StandIn answers like the edge, with runs in memory and faults on demand: what a client must bear
// is easier to bring about here than with the real one.
type StandIn struct {
	*httptest.Server
	t *testing.T

	Mu       sync.Mutex
	Runs     map[string][]string // lines
	keys     map[string]standInBatch
	requests []Request
	Minted   int
	Token    string

	// before may answer a request itself (true). n counts requests to the same path from 0.
	Before func(w http.ResponseWriter, r *http.Request, n int) bool
	// after may break off an append that is stored already (true).
	After func(n int) bool
	// stream may write a stream's body itself (true).
	Stream func(w http.ResponseWriter, r *http.Request, lines []string, n int) bool
}

type standInBatch struct {
	sum    [32]byte
	answer []byte
}

// Request is a request that a StandIn has had.
type Request struct {
	method, path, Key, cursor string
	Events                    int
	Body                      []byte
}

// NewStandIn starts a server that ends with the test.
func NewStandIn(t *testing.T) *StandIn {
	s := &StandIn{t: t, Runs: map[string][]string{}, keys: map[string]standInBatch{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agent/runs", s.create)
	mux.HandleFunc("POST /v1/agent/runs/{run}/events", s.append)
	mux.HandleFunc("GET /v1/agent/runs/{run}", s.summary)
	mux.HandleFunc("GET /v1/agent/runs/{run}/stream", s.follow)
	mux.HandleFunc("GET /v1/agent/runs/{run}/replay.jsonl", s.export)
	counts := map[string]int{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Mu.Lock()
		n := counts[r.URL.Path]
		counts[r.URL.Path]++
		before, token := s.Before, s.Token
		s.Mu.Unlock()
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			Problem(w, http.StatusUnauthorized, "UNAUTHORIZED", "a valid credential is needed", 0)
			return
		}
		r.Header.Set("X-Count", fmt.Sprint(n))
		if before != nil && before(w, r, n) {
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// Problem answers with an error as the edge does.
func Problem(w http.ResponseWriter, status int, code, message string, line int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": message, "line": line}})
}

func (s *StandIn) note(r *http.Request, body []byte) {
	s.requests = append(s.requests, Request{
		method: r.Method, path: r.URL.Path, Key: r.Header.Get("Idempotency-Key"),
		cursor: r.Header.Get("Last-Event-ID"), Events: bytes.Count(body, []byte{'\n'}), Body: body,
	})
}

func (s *StandIn) create(w http.ResponseWriter, r *http.Request) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.note(r, nil)
	s.Minted++
	run := fmt.Sprintf("run_minted_%d", s.Minted)
	s.Store(run, []schema.Event{{Type: schema.TypeRunLifecycle,
		Payload: json.RawMessage(`{"state":"running","reason":null}`)}})
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"first_seq":1,"last_seq":1,"run_id":%q,"state":"running"}`, run)
}

// Store numbers events; the caller holds the lock.
func (s *StandIn) Store(run string, events []schema.Event) (first, last int) {
	first = len(s.Runs[run]) + 1
	for i := range events {
		e := &events[i]
		e.RunID, e.Seq = run, schema.Seq(len(s.Runs[run])+1)
		if e.ID == "" {
			e.ID = fmt.Sprintf("evt_%06d", e.Seq)
		}
		if e.TS == "" {
			e.TS = time.UnixMilli(1_700_000_000_000 + 250*int64(e.Seq)).UTC().Format(schema.TimeLayout)
		}
		s.Runs[run] = append(s.Runs[run], string(e.AppendLine(nil)))
	}
	return first, len(s.Runs[run])
}

func (s *StandIn) append(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	run, key := r.PathValue("run"), r.Header.Get("Idempotency-Key")
	s.note(r, body)
	sum := sha256.Sum256(body)
	if was, ok := s.keys[key]; ok && key != "" {
		if was.sum != sum {
			Problem(w, http.StatusUnprocessableEntity, "KEY-REUSED", "the idempotency key was used for another content", 0)
			return
		}
		w.Write(was.answer)
		return
	}
	events, err := schema.DecodeBatch(run, body)
	if err != nil {
		line := 0
		var be *schema.BatchError
		if errors.As(err, &be) {
			line, err = be.Line, be.Err
		}
		Problem(w, http.StatusBadRequest, schema.Code(err), err.Error(), line)
		return
	}
	first, last := s.Store(run, events)
	answer := fmt.Appendf(nil, `{"first_seq":%d,"last_seq":%d}`, first, last)
	s.keys[key] = standInBatch{sum, answer}
	if s.After != nil && s.After(len(s.keys)) {
		panic(http.ErrAbortHandler)
	}
	w.Write(answer)
}

func (s *StandIn) summary(w http.ResponseWriter, r *http.Request) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.note(r, nil)
	if len(s.Runs[r.PathValue("run")]) == 0 {
		Problem(w, http.StatusNotFound, "NOT-FOUND", "there is nothing here", 0)
		return
	}
	fmt.Fprintf(w, `{"run_id":%q}`, r.PathValue("run"))
}

func (s *StandIn) export(w http.ResponseWriter, r *http.Request) {
	lines := s.Lines(r.PathValue("run"))
	if len(lines) == 0 {
		Problem(w, http.StatusNotFound, "NOT-FOUND", "there is nothing here", 0)
		return
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("after"))
	through, err := strconv.Atoi(r.URL.Query().Get("through"))
	if err != nil {
		through = len(lines)
	}
	w.Header().Set("Last-Seq", fmt.Sprint(through))
	io.WriteString(w, Join(lines[after:through]))
}

func (s *StandIn) follow(w http.ResponseWriter, r *http.Request) {
	s.Mu.Lock()
	s.note(r, nil)
	lines := append([]string(nil), s.Runs[r.PathValue("run")]...)
	n := len(s.requests)
	stream := s.Stream
	s.Mu.Unlock()
	after, err := schema.ParseCursor(r.Header.Get("Last-Event-ID"))
	switch {
	case err != nil:
		Problem(w, http.StatusBadRequest, "BAD-CURSOR", err.Error(), 0)
		return
	case len(lines) == 0:
		Problem(w, http.StatusNotFound, "NOT-FOUND", "there is nothing here", 0)
		return
	case int(after) > len(lines):
		Problem(w, http.StatusConflict, "CURSOR-AHEAD", "the cursor is beyond the newest event", 0)
		return
	case int(after) == len(lines):
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	if stream != nil && stream(w, r, lines[after:], n) {
		return
	}
	io.WriteString(w, SSEBody(lines[after:], "\n"))
}

// Lines returns a run's events as they are stored.
func (s *StandIn) Lines(run string) []string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return append([]string(nil), s.Runs[run]...)
}

// Log returns the requests so far.
func (s *StandIn) Log() []Request {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// SSEBody writes lines as the native dialect does: data, id.
func SSEBody(lines []string, eol string) string {
	var b strings.Builder
	for _, line := range lines {
		r, err := schema.ScanLine([]byte(line))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "data: %s%sid: %d%s%s", line, eol, r.Seq, eol, eol)
	}
	return b.String()
}
