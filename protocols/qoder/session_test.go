package qoder

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// fed returns a projector of a form that was fed a log.
func fed(t testing.TB, log, thread string) *Projector {
	t.Helper()
	p := Dialect{}.Projector(Request(testRun, thread)).(*Projector)
	feed(t, p, records(t, scenario(log)))
	return p
}

func TestSessionObject(t *testing.T) {
	created := `session.created {"agent":{"id":"agent_1","version":3,"model":"m1","more":[1.0]},"environment_id":"env_1","title":"a\u0041\ud800",
		"metadata":{"k":"v"},"resources":[{"type":"file"}],"vault_ids":["v"],"memory_store_ids":[],"incremental_streaming_enabled":true,"else":{"x":1e2}}`
	p := fed(t, strings.ReplaceAll(created, "\n\t\t", " ")+`
		turn.start {"turn_id":"t"}
		message.end {"message_id":"m","usage":{"input_tokens":5,"output_tokens":6,"cache_read_input_tokens":7}}
		kid:message.end {"message_id":"m","usage":{"prompt_tokens":10}}`, "")
	const agent = `{"id":"agent_1","type":"agent","version":3,"name":"agent_1","model":{"id":"m1"},"description":null,"system":null,"tools":[],"skills":[],` +
		`"mcp_servers":[],"multiagent":null,"execution_identity":{"type":"service_account"},"more":[1.0]}`
	const usage = `{"input_tokens":15,"output_tokens":6,"cache_read_input_tokens":7,"cache_creation_input_tokens":0,"cache_creation":null,"server_tool_use":null,"list_cost":null,"total_credits":null}`
	want := `{"id":"run_golden","type":"session","agent":` + agent +
		`,"agent_id":"agent_1","environment_id":"env_1","status":"running","turn_status":"running",` +
		`"title":"a\u0041\ud800","metadata":{"k":"v"},"resources":[{"type":"file"}],"vault_ids":["v"],"memory_store_ids":[],"incremental_streaming_enabled":true,` +
		`"stats":{"active_seconds":0.014,"duration_seconds":0.021},"usage":` + usage +
		`,"outcome_evaluations":[],"budget":null,"deployment_id":null,` +
		`"archived_at":null,"created_at":"2026-01-02T03:04:05.000Z","updated_at":"2026-01-02T03:04:05.021Z","else":{"x":1e2}}`
	if got := string(p.AppendSession(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for log, want := range map[string]string{
		`turn.start {"turn_id":"t"}`: "running/running",
		`progress {}`:                "idle/",
		"turn.start {\"turn_id\":\"t\"}\nturn.end {\"turn_id\":\"t\"}":    "idle/completed",
		`run.lifecycle {"state":"error"}`:                                 "idle/failed",
		`run.lifecycle {"state":"aborted"}`:                               "idle/cancelled",
		`run.lifecycle {"state":"paused"}`:                                "idle/requires_action",
		"turn.start {\"turn_id\":\"t\"}\nsession.archived {}":             "terminated/running",
		"session.created {\"agent\":7,\"title\":[],\"metadata\":\"x\"}\n": "idle/",
	} {
		got := fed(t, log, "").AppendSession(nil)
		if s := text(got, "status") + "/" + text(got, "turn_status"); s != want || !json.Valid(got) {
			t.Errorf("%s: %s, want %s: %s", log, s, want, got)
		}
	}
}

// A session of a list has the same fields as one that is asked for.
func TestListedObject(t *testing.T) {
	names := func(object []byte) (all []string) {
		for name := range jsonscan.Members(object) {
			all = append(all, string(name))
		}
		return all
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	info := &schema.RunInfo{ID: "run_golden", State: schema.StateRunning, Started: now,
		Updated: now.Add(1500 * time.Millisecond),
		Usage:   schema.Usage{"input_tokens": 3},
		Session: json.RawMessage(`{"agent":"agent_1","title":"T","incremental_streaming_enabled":true}`)}
	got, asked := (Dialect{}).AppendListed(nil, info), fed(t, `session.created {"agent":"agent_1"}`, "").AppendSession(nil)
	if !json.Valid(got) || !slices.Equal(names(got), names(asked)) {
		t.Errorf("listed %v\nasked %v", names(got), names(asked))
	}
	for name, want := range map[string]string{
		"status": `"running"`, "turn_status": `"running"`, "title": `"T"`, "agent_id": `"agent_1"`,
		"incremental_streaming_enabled": "true",
		"created_at":                    `"2026-01-02T03:04:05.000Z"`,
		"stats":                         `{"active_seconds":null,"duration_seconds":1.5}`,
		"archived_at":                   "null",
	} {
		if v := field(got, name); string(v) != want {
			t.Errorf("%s is %s, want %s", name, v, want)
		}
	}
	for state, want := range map[schema.RunState]string{
		"": "idle/", schema.StateDone: "idle/completed", schema.StateError: "idle/failed",
		schema.StateAborted: "idle/cancelled", schema.StatePaused: "idle/requires_action",
	} {
		got := (Dialect{}).AppendListed(nil, &schema.RunInfo{ID: "r", State: state,
			Session: json.RawMessage(`{"archived_at":null}`)})
		if s := text(got, "status") + "/" + text(got, "turn_status"); s != want {
			t.Errorf("%q: %s, want %s", state, s, want)
		}
	}
	// What is kept of the turn decides: it is of the newest event that says anything.
	for _, tt := range []struct {
		state schema.RunState
		turn  schema.Turn
		stop  string
		want  string
	}{
		{"", schema.TurnOpen, "", "running/running"},
		{schema.StatePaused, schema.TurnOpen, "", "running/running"},
		{schema.StateRunning, schema.TurnHeld, "", "idle/requires_action"},
		{schema.StateRunning, schema.TurnClosed, "tool_use", "idle/completed"},
		{"", schema.TurnClosed, "", "idle/completed"},
		{"", schema.TurnClosed, "interrupted", "idle/cancelled"},
		{schema.StatePlanning, schema.TurnClosed, "error", "idle/failed"},
	} {
		got := (Dialect{}).AppendListed(nil, &schema.RunInfo{ID: "r", State: tt.state, Turn: tt.turn, Stop: tt.stop})
		if s := text(got, "status") + "/" + text(got, "turn_status"); s != tt.want {
			t.Errorf("%q %q %q: %s, want %s", tt.state, tt.turn, tt.stop, s, tt.want)
		}
	}
	got = (Dialect{}).AppendListed(nil, &schema.RunInfo{ID: "r",
		Session: json.RawMessage(`{"archived_at":"2026-01-02T03:04:05Z"}`)})
	if text(got, "status") != "terminated" || text(got, "archived_at") != "2026-01-02T03:04:05Z" {
		t.Errorf("%s", got)
	}
}

func TestSessionFrames(t *testing.T) {
	log := `
		session.created {"agent":"a","metadata":{"a":"1","b":"2"}}
		child.spawn {"child_id":"kid"}
		session.updated {"title":"T\u0041","metadata":{"a":null,"c":"3"},"id":"x","processed_at":"y"}
		session.updated {"title":"T\u0041"}
		kid:session.archived {}
		kid:session.archived {}
		session.archived {}
		session.archived {}
		session.deleted {}
		session.deleted {}`
	p := hasFrames(t, log, "", `
		session.thread_created {"agent_name":"kid","parent_thread_id":"ROOT","workflow_run_id":null}
		session.updated {"title":"T\u0041","metadata":{"b":"2","c":"3"}}
		session.thread_status_terminated {"agent_name":"kid"}
		session.status_terminated {}
		session.deleted {}`)
	if !p.IsArchived() || !p.IsDeleted() || p.Busy() {
		t.Error(p.IsArchived(), p.IsDeleted(), p.Busy())
	}
	if err := p.Admit(Request(testRun, "")); !errors.Is(err, dialect.ErrNotFound) {
		t.Error(err)
	}
	hasFrames(t, log, ThreadID(testRun, "kid"), `
		session.thread_created {"agent_name":"kid","parent_thread_id":"ROOT","workflow_run_id":null}
		session.thread_status_terminated {"agent_name":"kid"}
		session.status_terminated {}
		session.deleted {}`)
	for thread, want := range map[string]string{"": "session.status_terminated session.deleted",
		"kid": "session.thread_status_terminated session.status_terminated session.deleted"} {
		id := thread
		if id != "" {
			id = ThreadID(testRun, thread)
		}
		var out dialect.Frames
		var last []string
		p := Dialect{}.Projector(Request(testRun, id))
		for _, r := range records(t, scenario(log)) {
			if err := p.Project(&out, r); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range out.List {
			if f.Last {
				last = append(last, string(f.Event))
			}
		}
		if got := strings.Join(last, " "); got != want {
			t.Errorf("thread %q ends with %s, want %s", thread, got, want)
		}
	}
}

// The flag is the log's, at each place of it; runs that are no sessions have the dialect's.
func TestIncrementalFlag(t *testing.T) {
	for log, want := range map[string]bool{
		`progress {}`: true, `session.updated {"title":"x"}`: true,
		`session.updated {"incremental_streaming_enabled":false}`: false,
		`session.created {}`: false, `session.created {"incremental_streaming_enabled":true}`: true,
		"session.created {}\nsession.updated {\"incremental_streaming_enabled\":true}":                                       true,
		"session.created {\"incremental_streaming_enabled\":true}\nsession.updated {\"title\":\"x\"}":                        true,
		"session.created {\"incremental_streaming_enabled\":true}\nkid:session.created {}":                                   true,
		"session.created {\"incremental_streaming_enabled\":true}\nsession.updated {\"incremental_streaming_enabled\":null}": false,
	} {
		p := Dialect{Increments: true}.Projector(Request(testRun, "")).(*Projector)
		feed(t, p, records(t, scenario(log)))
		if p.info.incremental != want {
			t.Errorf("%s: %v", log, !want)
		}
	}
}

func TestCreatePayload(t *testing.T) {
	for body, want := range map[string]string{
		`{"agent":"a"}`: `{"agent":"a","incremental_streaming_enabled":false}`,
		"{\n\"incremental_streaming_enabled\":true, \"agent\": {\"id\":\"a\",\"type\":\"agent\",\"version\":1},\r\n\"title\":\"\\ud800\\/\",\"foo\":1}":                                                                                                     `{"agent":{"id":"a","type":"agent","version":1},"title":"\ud800\/","incremental_streaming_enabled":true}`,
		`{"agent":"a","environment_id":"e","title":null,"metadata":{},"resources":[{"type":"github_repository","url":"u","authorization_token":"s3cret","x":{"\u0061uthorization_token":"s3cret"}}],"vault_ids":["v"],"memory_store_ids":[],"budget":null}`: `{"agent":"a","environment_id":"e","metadata":{},"resources":[{"type":"github_repository","url":"u","x":{}}],"vault_ids":["v"],"memory_store_ids":[],"incremental_streaming_enabled":false}`,
	} {
		got, err := CreatePayload([]byte(body))
		if err != nil || string(got) != want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", body, got, err, want)
		}
	}
	pairs := make([]string, 17)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	for body, param := range map[string]string{
		``: "", `[]`: "", `{`: "", `7`: "", "{\"agent\":\"\xff\"}": "", `{}`: "agent", `{"agent":null}`: "agent",
		`{"agent":""}`: "agent", `{"agent":7}`: "agent",
		`{"agent":{}}`: "agent.id", `{"agent":{"id":"a","version":0}}`: "agent.version",
		`{"agent":{"id":"a","version":"1"}}`:  "agent.version",
		`{"agent":{"id":"a","type":"robot"}}`: "agent.type", `{"agent":"a","agent":"b"}`: "agent",
		`{"agent":"a","environment_id":1}`: "environment_id",
		`{"agent":"a","title":{}}`:         "title", `{"agent":"a","title":"` + strings.Repeat("x", 513) + `"}`: "title",
		`{"agent":"a","metadata":[]}`:      "metadata",
		`{"agent":"a","metadata":{"k":1}}`: "metadata.k", `{"agent":"a","metadata":{"k":null}}`: "metadata.k",
		`{"agent":"a","metadata":{"k":"a","k":"b"}}`: "metadata.k",
		`{"agent":"a","metadata":{"` + strings.Repeat("k", 65) + `":"v"}}`: "metadata." +
			strings.Repeat("k", 64) + "…",
		`{"agent":"a","metadata":{"k":"` + strings.Repeat("v", 513) + `"}}`:              "metadata.k",
		`{"agent":"a","metadata":{` + strings.Join(pairs, ",") + `}}`:                    "metadata",
		`{"agent":"a","resources":{}}`:                                                   "resources",
		`{"agent":"a","resources":[1]}`:                                                  "resources[0]",
		`{"agent":"a","vault_ids":["v",2]}`:                                              "vault_ids[1]",
		`{"agent":"a","incremental_streaming_enabled":"true"}`:                           "incremental_streaming_enabled",
		`{"agent":"a","budget":{"type":"limit"}}`:                                        "budget",
		`{"agent":{"id":"a","system":"` + strings.Repeat("s", schema.MaxSession) + `"}}`: "agent",
		`{"agent":` + strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000) + `}`:        "agent",
	} {
		_, err := CreatePayload([]byte(body))
		refused(t, clipped(body), err, param)
	}
}

// refused checks that an error is the client's, and of which parameter.
func refused(t *testing.T, what string, err error, param string) {
	t.Helper()
	var at *ParamError
	if !errors.Is(err, dialect.ErrBadRequest) || errors.As(err, &at) != (param != "") || at != nil && at.Field() != param {
		t.Errorf("%s: %v, want one about %q", what, err, param)
	}
}

func clipped(s string) string { return s[:min(len(s), 80)] }

func TestUpdatePayload(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: `{}`, `{"foo":1}`: `{}`, `{"title":null,"metadata":{"a":null,"b":"c"}}`: `{"title":null,"metadata":{"a":null,"b":"c"}}`,
		`{"agent":{"tools":[]},"incremental_streaming_enabled":false}`: `{"agent":{"tools":[]},"incremental_streaming_enabled":false}`,
		`{"metadata":null,"vault_ids":null}`:                           `{"metadata":null,"vault_ids":null}`,
	} {
		if got, err := UpdatePayload([]byte(body)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", body, got, err)
		}
	}
	for body, param := range map[string]string{
		`{"agent":null}`: "agent", `{"incremental_streaming_enabled":null}`: "incremental_streaming_enabled",
		`{"title":7}`: "title", `{"budget":{}}`: "budget", `null`: "",
	} {
		_, err := UpdatePayload([]byte(body))
		refused(t, body, err, param)
	}

	var log strings.Builder
	fmt.Fprint(&log, `session.created {"agent":"a","metadata":{`)
	for i := range maxPairs {
		fmt.Fprintf(&log, `%.*s"k%d":"v"`, min(i, 1), ",", i)
	}
	p := fed(t, log.String()+`}}`, "")
	refused(t, "one more", p.CheckUpdate(json.RawMessage(`{"metadata":{"more":"v"}}`)), "metadata")
	if err := p.CheckUpdate(json.RawMessage(`{"metadata":{"more":"v","k1":null}}`)); err != nil {
		t.Error(err)
	}
	refused(t, "too much", p.CheckUpdate(json.RawMessage(`{"agent":"`+strings.Repeat("x", schema.MaxSession)+`"}`)), "")
}

func TestInitialEvents(t *testing.T) {
	got, err := InitialEvents([]byte(`{"agent":"a","initial_events":[{"type":"user.message","content":"x"},{"type":"user.define_outcome"}]}`))
	if err != nil || len(got) != 2 || string(got[0]) != `{"type":"user.message","content":"x"}` {
		t.Error(got, err)
	}
	if got, err := InitialEvents([]byte(`{"initial_events":null}`)); err != nil || got != nil {
		t.Error(got, err)
	}
	for body, param := range map[string]string{
		`{"initial_events":{}}`:                          "initial_events",
		`{"initial_events":[{"type":"user.interrupt"}]}`: "initial_events[0].type", `x`: "",
		`{"initial_events":[` + strings.Repeat(`{"type":"user.message"},`, 50) + `{}]}`: "initial_events",
	} {
		_, err := InitialEvents([]byte(body))
		refused(t, clipped(body), err, param)
	}
}
