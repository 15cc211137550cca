package e2e_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A run over HTTP whose client is gone is ended, and says why; one that goes on is not.
func TestRunsOfClientsThatAreGone(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--reap-unowned-after", "3s")
	p.start()
	defer p.kill()
	base := "http://" + p.addr
	say := func(run, body string) {
		t.Helper()
		if _, _, err := post(t.Context(), http.DefaultClient, base+"/v1/agent/runs/"+run+"/events", rand.Text(),
			[]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	const begin = `{"type":"run.lifecycle","payload":{"state":"running"}}` + "\n" +
		`{"type":"message.start","payload":{"message_id":"m","role":"assistant"}}` + "\n"
	say("left", begin+`{"type":"text.delta","payload":{"text":"half of"}}`)
	say("lively", begin)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ended := false; !ended; {
		say("lively", `{"type":"text.delta","payload":{"text":"."}}`)
		lines := strings.Join(events(t, base+"/v1/agent/runs/left"), "\n")
		if ended = strings.Contains(lines, `"state":"error","reason":"writer is gone"`); !ended {
			select {
			case <-ctx.Done():
				t.Fatalf("after a minute the run is %s", lines)
			case <-time.After(300 * time.Millisecond):
			}
		} else if !strings.Contains(lines, `"text":"half of"`) || strings.Count(lines, "message.end") != 1 {
			t.Fatalf("the run is %s", lines)
		}
	}
	if lines := strings.Join(events(t, base+"/v1/agent/runs/lively"), "\n"); strings.Contains(lines, "gone") {
		t.Fatalf("the run that goes on is %s", lines)
	}
}
