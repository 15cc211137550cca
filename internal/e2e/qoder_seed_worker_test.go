package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// A worker that is killed in the middle of its answers ends those turns as failed when it comes back, and answers
// again from the beginning; what was said while it was away is answered; what was answered is not answered twice.
func TestSessionsAreAnsweredAfterAKill(t *testing.T) {
	beside(t)
	data := t.TempDir()
	p := newProc(t, "dev", "--data", data, "--demo-script", "quick")
	p.start()
	var whole, cut []string
	for range 3 {
		id := createSession(t, p, true)
		sendMessage(t, p, id, "hi")
		whole = append(whole, id)
	}
	for _, id := range whole {
		awaitTypes(t, p, id, "session.status_idle", 1)
	}
	for range 5 {
		id := createSession(t, p, true)
		sendMessage(t, p, id, "a long message "+strings.Repeat("word ", 100))
		cut = append(cut, id)
	}
	for _, id := range cut {
		awaitTypes(t, p, id, "agent.content_block_delta", 3)
	}
	p.kill()
	p.args = append(p.args, "--no-demo")
	p.start()
	for _, id := range whole {
		sendMessage(t, p, id, "again")
	}
	time.Sleep(300 * time.Millisecond) // that nobody answers has no other sign
	for _, id := range whole {
		if got := eventTypes(t, p, id); got[len(got)-1] != "user.message" {
			t.Errorf("nobody is there, and the session goes on with %v", got)
		}
	}
	p.kill()
	p.args = slices.DeleteFunc(p.args, func(arg string) bool { return arg == "--no-demo" })
	p.args = append(p.args, "--demo-speed", "20")
	p.start()
	for _, id := range cut {
		got := awaitTypes(t, p, id, "agent.message", 2)
		if !slices.Contains(got, "session.error") {
			t.Errorf("the turn that was cut has no end: %v", got)
		}
	}
	for _, id := range whole {
		got := awaitTypes(t, p, id, "session.status_idle", 2)
		if n := len(slices.DeleteFunc(got, func(s string) bool { return s != "agent.message" })); n != 2 {
			t.Errorf("two messages have %d answers", n)
		}
	}
}

func createSession(t *testing.T, p *proc, incremental bool) string {
	t.Helper()
	var session struct{ ID string }
	body := fmt.Sprintf(`{"agent":"agent_seed","environment_id":"env_seed","incremental_streaming_enabled":%v}`,
		incremental)
	if err := json.Unmarshal(postJSON(t, p.url("/api/v1/cloud/sessions"), body), &session); err != nil ||
		session.ID == "" {
		t.Fatalf("session: %+v, %v", session, err)
	}
	return session.ID
}

func sendMessage(t *testing.T, p *proc, session, text string) {
	t.Helper()
	postJSON(t, p.url("/api/v1/cloud/sessions/"+session+"/events"),
		fmt.Sprintf(`{"events":[{"type":"user.message","content":[{"type":"text","text":%q}]}]}`, text))
}

func postJSON(t *testing.T, url, body string) []byte {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out json.RawMessage
	if err := json.NewDecoder(bufio.NewReader(resp.Body)).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", url, resp.StatusCode, out, err)
	}
	return out
}

// eventTypes returns the types of a session's history.
func eventTypes(t *testing.T, p *proc, session string) (out []string) {
	t.Helper()
	var list struct{ Data []struct{ Type string } }
	if err := json.Unmarshal(get(t, p.url("/api/v1/cloud/sessions/"+session+"/events?limit=1000")), &list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Data {
		out = append(out, e.Type)
	}
	return out
}

func awaitTypes(t *testing.T, p *proc, session, typ string, n int) (all []string) {
	t.Helper()
	eventually(t, 30*time.Second, fmt.Sprintf("%d %s in %s", n, typ, session), func() bool {
		all = eventTypes(t, p, session)
		got := 0
		for _, have := range all {
			if have == typ {
				got++
			}
		}
		return got >= n
	})
	return all
}
