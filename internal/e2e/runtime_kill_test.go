package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/schema"
)

// oneByOne is an upstream that says ten words in half a second, and counts what it was asked by the text of the message.
type oneByOne struct {
	mu    sync.Mutex
	asked map[string]int
}

func (u *oneByOne) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var f struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil || len(f.Messages) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	u.asked[f.Messages[0].Content]++
	u.mu.Unlock()
	for i := range 10 {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"%d \"}}]}\n\n", i)
		w.(http.Flusher).Flush()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

// However often workers, and the server with the log in it, are killed: each run that is answered once ends once, what was said
// is a beginning of the answer, and no model is asked twice for it. Runs that nobody had begun are answered.
func TestRuntimeOnceUnderKills(t *testing.T) {
	beside(t)
	runs, kills := 40, 4
	if os.Getenv("AGENTSTREAM_RUNTIME") == "all" {
		runs, kills = 200, 20
	}
	up := &oneByOne{asked: map[string]int{}}
	srv := httptest.NewServer(up)
	defer srv.Close()
	nats := freeAddr(t)
	dev := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--nats-listen", nats, "--partitions", "2")
	dev.start()
	w := newProc(t, "worker", "--nats", "nats://"+nats, "--upstream", "openai="+srv.URL, "--models", "m", "--places", "16")
	w.env = append(w.env, "OPENAI_API_KEY=sk-for-the-upstream")
	w.start()
	name := func(i int) string { return fmt.Sprintf("once_%03d", i) }
	var group sync.WaitGroup
	group.Go(func() {
		for i := range runs {
			time.Sleep(time.Duration(kills) * 500 * time.Millisecond / time.Duration(runs)) // so that each kill has some in its middle
			body := `{"type":"session.created","payload":{"once":true,"model":"m","deadlines":{"total_ms":120000}}}` + "\n" +
				`{"type":"command.message","payload":{"content":"` + name(i) + `"}}`
			if _, _, err := post(t.Context(), http.DefaultClient, dev.url("/v1/agent/runs/"+name(i)+"/events"), name(i), []byte(body)); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range kills {
		time.Sleep(700 * time.Millisecond) // in the middle of several answers
		w.kill()
		if i%4 == 3 {
			dev.kill()
			dev.start()
		}
		w.start()
	}
	group.Wait()
	done, cut := 0, 0
	for i := range runs {
		lines := ""
		eventually(t, 90*time.Second, name(i)+" over", func() bool {
			lines = strings.Join(events(t, dev.url("/v1/agent/runs/"+name(i))), "\n")
			return strings.Contains(lines, `"run.lifecycle"`)
		})
		_, f := readBack(t, dev.url("/v1/agent/runs/"+name(i)))
		said := ""
		for _, m := range f.Messages {
			for _, b := range m.Blocks {
				if m.Role != "user" {
					said += b.Text.String()
				}
			}
		}
		const whole = "0 1 2 3 4 5 6 7 8 9 "
		switch {
		case strings.Count(lines, `"run.lifecycle"`) != 1, strings.Count(lines, `"turn.start"`) != 1:
			t.Errorf("%s: not one turn with one end:\n%s", name(i), lines)
		case f.State == schema.StateDone && said == whole:
			done++
		case f.State == schema.StateError && strings.HasPrefix(f.Reason, "AI_STREAM_BROKEN: ") && strings.HasPrefix(whole, said):
			cut++
		default:
			t.Errorf("%s: %s %q with %q", name(i), f.State, f.Reason, said)
		}
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	for text, n := range up.asked {
		if n != 1 {
			t.Errorf("%s: asked %d times", text, n)
		}
	}
	if done == 0 || cut == 0 {
		t.Errorf("%d answered and %d cut: nothing was killed in its middle, or all", done, cut)
	}
	if strings.Contains(w.log.String(), "sk-for-the-upstream") {
		t.Error("the credential is in the log of the worker")
	}
	t.Logf("%d answered, %d cut, %d kills", done, cut, kills)
}
