package e2e_test

import (
	"strings"
	"testing"
	"time"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// TestDevEndsItsAnswersFirst: on SIGTERM dev ends what it answers before the streams that show it. So watchers hear the true end,
// and it is the run's in the log: nothing is left to go on or to be reaped behind the restart.
func TestDevEndsItsAnswersFirst(t *testing.T) {
	beside(t)
	data := t.TempDir()
	p := newProc(t, "dev", "--data", data)
	p.args = append(p.args, "--drain", "1ms") // the streams have no time of their own to hear it
	p.start()
	const streams = 32
	heard := make(chan heardScenario, streams)
	begun := make(chan string, streams)
	conn := runtimeConn(t, p.addr)
	for range streams {
		go func() {
			h, err := hearScenario(t.Context(), conn, "", textScenario("demo/silent", "hello"), func(e *runtimev1.StreamScenarioEvent) {
				if e.GetStarted() != nil {
					begun <- e.GetTraceId()
				}
			})
			if err != nil {
				t.Error(err)
			}
			heard <- h
		}()
	}
	for range streams {
		run := <-begun
		eventually(t, time.Minute, "the worker answers "+run, func() bool {
			return strings.Contains(string(download(t, p.url("/v1/agent/runs/"+run+"/replay.jsonl"))), `"turn.start"`)
		})
	}
	if code := p.stop(); code != 0 {
		t.Errorf("dev ended with %d", code)
	}
	var runs []string
	for range streams {
		h := <-heard
		if h.failed == nil && h.completed == nil {
			t.Errorf("%s: its stream ended without its end: %v", h.run, h.err)
		}
		runs = append(runs, h.run)
	}
	p.start()
	for _, run := range runs {
		log := download(t, p.url("/v1/agent/runs/"+run+"/replay.jsonl"))
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		e, err := schema.DecodeLine([]byte(lines[len(lines)-1]))
		if err != nil || e.Type != schema.TypeRunLifecycle || strings.Count(string(log), `"state":"error"`)+strings.Count(string(log), `"state":"aborted"`) != 1 {
			t.Errorf("%s ends with %s %s, %v", run, e.Type, e.Payload, err)
		}
	}
}
