package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// aisdkRuns are stored logs, of which each client reads the newest response. The first is one that answers a message.
var aisdkRuns = []string{"session", "plain", "parallel-tools", "unicode", "children", "hostile", "tool", "dispatch"}

// storeScenario stores a scenario as a run, through an edge.
func storeScenario(t *testing.T, url, run, name string) {
	t.Helper()
	var body bytes.Buffer
	for _, e := range schematest.ByName(name).Events {
		e.ID, e.RunID, e.Seq, e.FirstSeq, e.Path, e.Cause = "", "", 0, 0, nil, ""
		line, err := json.Marshal(struct {
			Type    string          `json:"type"`
			ChildID *string         `json:"child_id,omitempty"`
			TurnID  string          `json:"turn_id,omitempty"`
			Payload json.RawMessage `json:"payload"`
		}{e.Type, orNil(e.ChildID), e.TurnID, e.Payload})
		if err != nil {
			t.Fatal(err)
		}
		body.Write(append(line, '\n'))
	}
	resp, err := http.Post(url+"/v1/agent/runs/"+run+"/events", "application/x-ndjson", &body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		t.Fatalf("%s: %d %s", name, resp.StatusCode, text)
	}
}

// TestAISDK: the AI SDK, unmodified, in versions 6 and 7: one client object that is cut behind every chunk and in the
// middle of each has in the end what one has that was never cut.
func TestAISDK(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	var runs []string
	for _, name := range aisdkRuns {
		run := "run_" + strings.ReplaceAll(name, "-", "_")
		storeScenario(t, w.edges[0].url(""), run, name)
		runs = append(runs, run+messageOf(name))
	}
	every := "7"
	if os.Getenv("AGENTSTREAM_PROOFS") != "" {
		every = "1"
	}
	for _, c := range []struct{ client, sdk, known string }{{"chat", "6", ""}, {"chat", "7", ""}, {"hook", "7", ""},
		{"hook", "6", "yes"}, {"workflow", "6", ""}} {
		t.Run(c.client+" "+c.sdk, func(t *testing.T) {
			t.Parallel()
			script(t, node, "aisdk.mjs", "BASE="+w.edges[0].url(""), "TOKEN="+edgeToken, "RUNS="+strings.Join(runs, ";"),
				"CLIENT="+c.client, "SDK="+c.sdk, "KNOWN="+c.known, "EVERY="+every)
		})
	}
}

// messageOf returns " ID" of the newest message of a person that a scenario has.
func messageOf(name string) (id string) {
	for _, e := range schematest.ByName(name).Events {
		var p struct {
			ID string `json:"message_id"`
		}
		if e.Type == schema.TypeCommandMessage && e.ChildID == "" && json.Unmarshal(e.Payload, &p) == nil && p.ID != "" {
			id = " " + p.ID
		}
	}
	return id
}

// TestAISDKLive: a chat with an agent that answers, from two tabs at two nodes: messages, a stop from the other tab,
// approvals, a reload.
func TestAISDKLive(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	serveRuns(t, w.nats, "chat_", serveSession)
	for _, sdk := range []string{"6", "7"} {
		t.Run(sdk, func(t *testing.T) {
			t.Parallel()
			script(t, node, "aisdk-live.mjs", "BASE="+w.edges[0].url(""), "OTHER="+w.edges[1].url(""),
				"TOKEN="+edgeToken, "SDK="+sdk)
		})
	}
}
