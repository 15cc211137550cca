package e2e_test

import (
	"strings"
	"sync"
	"testing"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// TestDevEndsItsAnswersFirst: on SIGTERM dev ends what it answers before the streams that show it. So watchers hear the true end,
// and it is the run's in the log: nothing is left to go on or to be reaped behind the restart.
func TestDevEndsItsAnswersFirst(t *testing.T) {
	beside(t)
	data := t.TempDir()
	p := newProc(t, "dev", "--data", data)
	p.start()
	const streams = 8
	heard := make(chan heardScenario, streams)
	begun := make(chan struct{}, streams)
	conn := runtimeConn(t, p.addr)
	for range streams {
		go func() {
			speaks := sync.OnceFunc(func() { begun <- struct{}{} })
			h, err := hearScenario(t.Context(), conn, "", textScenario("demo", "think long"), func(e *runtimev1.StreamScenarioEvent) {
				if e.GetDelta() != nil {
					speaks()
				}
			})
			if err != nil {
				t.Error(err)
			}
			heard <- h
		}()
	}
	for range streams {
		<-begun
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
