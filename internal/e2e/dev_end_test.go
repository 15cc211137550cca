package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// TestDevLeavesWhatItAnswers: dev that is told to end writes nothing about what it answers: streams are broken off.
// After the restart a session goes on, a run that nobody had begun to answer is answered, and one that is answered once
// ends as broken off.
func TestDevLeavesWhatItAnswers(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--data", t.TempDir(), "--demo-speed", "1")
	p.start()
	session := p.url("/v1/agent/runs/talk")
	said := `{"type":"session.created","payload":{}}` + "\n" + `{"type":"command.message","payload":{"content":"long"}}`
	if answer, _, err := post(t.Context(), http.DefaultClient, session+"/events", "talk", []byte(said)); err != nil {
		t.Fatal(answer, err)
	}
	talk, demo := openSSE(t, session), openSSE(t, p.url("/v1/agent/runs/demo"))
	begun := newScenarios(t, p, "demo/silent", 255) // with the session all that a worker answers at a time
	unbegun := newScenarios(t, p, "demo", 3)        // no place is left for them
	talk.await(t, `"text.delta"`)
	begun.await(t, p, `"turn.start"`)
	if code := p.stop(); code != 0 {
		t.Errorf("dev ended with %d", code)
	}
	talk.isCut(t)
	demo.isCut(t)
	begun.areCut(t)
	unbegun.areCut(t)

	p.args = append(p.args, "--demo-speed", "0")
	p.start()
	whole := func(run, last string) string {
		var log string
		eventually(t, time.Minute, run+" goes on", func() bool {
			log = string(download(t, p.url("/v1/agent/runs/"+run+"/replay.jsonl")))
			return strings.Contains(log, last)
		})
		return log
	}
	log := whole("talk", `"stop_reason":"end_turn"}}`)
	if strings.Contains(log, `"cancelled"`) || strings.Count(log, `"turn.start"`) != 2 {
		t.Errorf("the session went on as %s", log)
	}
	for _, run := range unbegun.runs {
		if log := whole(run, `"run.lifecycle"`); !strings.Contains(log, `"state":"done"`) {
			t.Errorf("%s was not begun, and went on as %s", run, log)
		}
	}
	for _, run := range begun.runs {
		if log := whole(run, `"run.lifecycle"`); !strings.Contains(log,
			`"state":"error","reason":"AI_STREAM_BROKEN: the worker that answered is gone`) {
			t.Errorf("%s ended as %s", run, log)
		}
	}
	if log := string(download(t, p.url("/v1/agent/runs/demo/replay.jsonl"))); strings.Contains(log, `"aborted"`) {
		t.Errorf("the demo run went on as %s", tail(log, 1000))
	}
}

// sseStream is a stream of server-sent events that is read until it ends.
type sseStream struct {
	url  string
	text lockedBuffer
	end  chan error
}

func openSSE(t *testing.T, run string) *sseStream {
	t.Helper()
	s := &sseStream{url: run, end: make(chan error, 1)}
	resp, err := http.Get(run + "/stream?detail=full")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer resp.Body.Close()
		_, err := io.Copy(&s.text, resp.Body)
		s.end <- err
	}()
	return s
}

func (s *sseStream) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, time.Minute, s.url+" brings "+text, func() bool { return strings.Contains(s.text.String(), text) })
}

func (s *sseStream) isCut(t *testing.T) {
	t.Helper()
	if err := <-s.end; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%s ended with %v behind %s", s.url, err, tail(s.text.String(), 1000))
	}
}

// scenarios are runs that are answered once, each with a client that hears it.
type scenarios struct {
	runs  []string
	heard chan heardScenario
}

// newScenarios begins scenarios and returns when all are stored.
func newScenarios(t *testing.T, p *proc, model string, n int) *scenarios {
	t.Helper()
	s := &scenarios{heard: make(chan heardScenario, n)}
	started := make(chan string, n)
	for some := range slices.Chunk(make([]struct{}, n), 50) { // streams of a connection
		conn := runtimeConn(t, p.addr)
		for range some {
			go func() {
				h, err := hearScenario(t.Context(), conn, "", textScenario(model, "hello"), func(e *runtimev1.StreamScenarioEvent) {
					if e.GetStarted() != nil {
						started <- e.GetTraceId()
					}
				})
				if err != nil {
					t.Error(fmt.Errorf("a scenario of %s: %w", model, err))
				}
				s.heard <- h
			}()
		}
	}
	for range n {
		select {
		case run := <-started:
			s.runs = append(s.runs, run)
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d scenarios have started", len(s.runs), n)
		}
	}
	return s
}

func (s *scenarios) await(t *testing.T, p *proc, event string) {
	t.Helper()
	for _, run := range s.runs {
		eventually(t, time.Minute, run+" holds "+event, func() bool {
			return strings.Contains(string(download(t, p.url("/v1/agent/runs/"+run+"/replay.jsonl"))), event)
		})
	}
}

func (s *scenarios) areCut(t *testing.T) {
	t.Helper()
	for range s.runs {
		if h := <-s.heard; h.err == nil {
			t.Errorf("%s: its stream was ended: %v %v", h.run, h.completed, h.failed)
		}
	}
}
