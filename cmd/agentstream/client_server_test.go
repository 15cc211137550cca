package main

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

// standIn answers like the edge, with runs in memory and faults on demand: what a client must bear
// is easier to bring about here than with the real one.
type standIn struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	runs     map[string][]string // lines
	keys     map[string]standInBatch
	requests []standInRequest
	minted   int
	token    string

	// before may answer a request itself (true). n counts requests to the same path from 0.
	before func(w http.ResponseWriter, r *http.Request, n int) bool
	// after may break off an append that is stored already (true).
	after func(n int) bool
	// stream may write a stream's body itself (true).
	stream func(w http.ResponseWriter, r *http.Request, lines []string, n int) bool
}

type standInBatch struct {
	sum    [32]byte
	answer []byte
}

type standInRequest struct {
	method, path, key, cursor string
	events                    int
	body                      []byte
}

func newStandIn(t *testing.T) *standIn {
	s := &standIn{t: t, runs: map[string][]string{}, keys: map[string]standInBatch{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agent/runs", s.create)
	mux.HandleFunc("POST /v1/agent/runs/{run}/events", s.append)
	mux.HandleFunc("GET /v1/agent/runs/{run}", s.summary)
	mux.HandleFunc("GET /v1/agent/runs/{run}/stream", s.follow)
	mux.HandleFunc("GET /v1/agent/runs/{run}/replay.jsonl", s.export)
	counts := map[string]int{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := counts[r.URL.Path]
		counts[r.URL.Path]++
		before, token := s.before, s.token
		s.mu.Unlock()
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			problem(w, http.StatusUnauthorized, "UNAUTHORIZED", "a valid credential is needed", 0)
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

func problem(w http.ResponseWriter, status int, code, message string, line int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": message, "line": line}})
}

func (s *standIn) note(r *http.Request, body []byte) {
	s.requests = append(s.requests, standInRequest{
		method: r.Method, path: r.URL.Path, key: r.Header.Get("Idempotency-Key"),
		cursor: r.Header.Get("Last-Event-ID"), events: bytes.Count(body, []byte{'\n'}), body: body,
	})
}

func (s *standIn) create(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(r, nil)
	s.minted++
	run := fmt.Sprintf("run_minted_%d", s.minted)
	s.store(run, []schema.Event{{Type: schema.TypeRunLifecycle, Payload: json.RawMessage(`{"state":"running","reason":null}`)}})
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"first_seq":1,"last_seq":1,"run_id":%q,"state":"running"}`, run)
}

// store numbers events; the caller holds the lock.
func (s *standIn) store(run string, events []schema.Event) (first, last int) {
	first = len(s.runs[run]) + 1
	for i := range events {
		e := &events[i]
		e.RunID, e.Seq = run, schema.Seq(len(s.runs[run])+1)
		if e.ID == "" {
			e.ID = fmt.Sprintf("evt_%06d", e.Seq)
		}
		if e.TS == "" {
			e.TS = time.UnixMilli(1_700_000_000_000 + 250*int64(e.Seq)).UTC().Format(schema.TimeLayout)
		}
		s.runs[run] = append(s.runs[run], string(e.AppendLine(nil)))
	}
	return first, len(s.runs[run])
}

func (s *standIn) append(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run, key := r.PathValue("run"), r.Header.Get("Idempotency-Key")
	s.note(r, body)
	sum := sha256.Sum256(body)
	if was, ok := s.keys[key]; ok && key != "" {
		if was.sum != sum {
			problem(w, http.StatusUnprocessableEntity, "KEY-REUSED", "the idempotency key was used for another content", 0)
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
		problem(w, http.StatusBadRequest, schema.Code(err), err.Error(), line)
		return
	}
	first, last := s.store(run, events)
	answer := fmt.Appendf(nil, `{"first_seq":%d,"last_seq":%d}`, first, last)
	s.keys[key] = standInBatch{sum, answer}
	if s.after != nil && s.after(len(s.keys)) {
		panic(http.ErrAbortHandler)
	}
	w.Write(answer)
}

func (s *standIn) summary(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(r, nil)
	if len(s.runs[r.PathValue("run")]) == 0 {
		problem(w, http.StatusNotFound, "NOT-FOUND", "there is nothing here", 0)
		return
	}
	fmt.Fprintf(w, `{"run_id":%q}`, r.PathValue("run"))
}

func (s *standIn) export(w http.ResponseWriter, r *http.Request) {
	lines := s.lines(r.PathValue("run"))
	if len(lines) == 0 {
		problem(w, http.StatusNotFound, "NOT-FOUND", "there is nothing here", 0)
		return
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("after"))
	through, err := strconv.Atoi(r.URL.Query().Get("through"))
	if err != nil {
		through = len(lines)
	}
	w.Header().Set("Last-Seq", fmt.Sprint(through))
	io.WriteString(w, joined(lines[after:through]))
}

func (s *standIn) follow(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.note(r, nil)
	lines := append([]string(nil), s.runs[r.PathValue("run")]...)
	n := len(s.requests)
	stream := s.stream
	s.mu.Unlock()
	after, err := schema.ParseCursor(r.Header.Get("Last-Event-ID"))
	switch {
	case err != nil:
		problem(w, http.StatusBadRequest, "BAD-CURSOR", err.Error(), 0)
		return
	case len(lines) == 0:
		problem(w, http.StatusNotFound, "NOT-FOUND", "there is nothing here", 0)
		return
	case int(after) > len(lines):
		problem(w, http.StatusConflict, "CURSOR-AHEAD", "the cursor is beyond the newest event", 0)
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
	io.WriteString(w, sseBody(lines[after:], "\n"))
}

// lines returns a run's events as they are stored.
func (s *standIn) lines(run string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.runs[run]...)
}

func (s *standIn) log() []standInRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]standInRequest(nil), s.requests...)
}

// sseBody writes lines as the native dialect does: data, id.
func sseBody(lines []string, eol string) string {
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
