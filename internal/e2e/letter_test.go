package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// letterLane is what a person sees of one speaker in the client of the protocol's text (js/letter.mjs).
type letterLane struct {
	Text, Reasoning string
	Tools           []letterCall
	Steps           []int
	Plans           [][]string
	Spawned         []string
	State           string
}

// letterCall is one call of a tool.
type letterCall struct {
	CallID string `json:"call_id"`
	Tool   string
	Input  any
	Error  any
	Done   bool
	OK     bool
}

// letterView is one reading of a run.
type letterView struct {
	Lanes    map[string]letterLane
	Events   int
	Disorder int
	Unknown  map[string]int
}

// letterRead is a run as that client has read it in three ways.
type letterRead struct {
	Run            string
	Plain, Profile letterView
	Cut            bool // cut off behind every k-th event it has seen the same
	Connections    int
	Every          int
}

// readByLetter has runs read by the client of the protocol's text, each cut off so many times; 0: behind every event.
func readByLetter(t *testing.T, base string, runs []string, cuts int) map[string]letterRead {
	t.Helper()
	cmd := command(program(t, "node"), "letter.mjs")
	cmd.Dir = jsDir
	cmd.Env = append(os.Environ(), "BASE="+base, "CUTS="+strconv.Itoa(cuts))
	cmd.Stdin = strings.NewReader(strings.Join(runs, "\n") + "\n")
	said := &bytes.Buffer{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	reads := map[string]letterRead{}
	for line := range bytes.Lines(out) {
		var r letterRead
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v: %.300s", err, line)
		}
		reads[r.Run] = r
	}
	if len(reads) != len(runs) {
		t.Fatalf("%d runs were read, want %d", len(reads), len(runs))
	}
	return reads
}

// sound holds what is true of every reading. code is what the error of a call that failed begins with.
func (r letterRead) sound(t *testing.T, code string) {
	t.Helper()
	for name, v := range map[string]letterView{"by default": r.Plain, "in the profile": r.Profile} {
		if v.Disorder > 0 || v.Events == 0 {
			t.Errorf("%s: %d events, %d out of order", name, v.Events, v.Disorder)
		}
		for id, l := range v.Lanes {
			for _, call := range l.Tools {
				if said, ok := call.Error.(string); call.Done && !call.OK && !(ok && strings.HasPrefix(said, code)) {
					t.Errorf("%s: lane %s: call %s ends with the error %v", name, id, call.CallID, call.Error)
				}
			}
		}
	}
	if len(r.Profile.Unknown) > 0 {
		t.Errorf("the profile has types that are not of the protocol: %v", r.Profile.Unknown)
	}
	if !r.Cut {
		t.Errorf("cut off behind every %d events, in %d connections, it sees something else", r.Every, r.Connections)
	}
}

// digest is a text of expected.json.
type digest struct {
	Bytes  int
	SHA256 string
}

func (d digest) is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return len(text) == d.Bytes && (d.Bytes == 0 || hex.EncodeToString(sum[:]) == d.SHA256)
}

// foreseen is what expected.json says of a recording, as far as a person sees it.
type foreseen struct {
	Text, Refusal, Reasoning digest
	ToolCalls                []struct {
		ID, Name string
		Input    any
		RawInput digest // of an input that is no JSON
		Complete bool   `json:"inputComplete"`
	}
	Streams []foreseen
}

// notByLetter are recordings whose whole is not one text: what the protocol's text has no place for.
var notByLetter = map[string]string{
	"openai-chat/three-choices.sse": "three answers at once are one text to who knows no messages",
}

// checkLetter holds every recording, as the client of the protocol's text has seen it, to what expected.json says.
func checkLetter(t *testing.T, base string, runs map[string]string, failed func(name string) bool) {
	data, err := os.ReadFile(filepath.Join(providertest.Dir(t), "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]foreseen
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, run := range runs {
		names = append(names, run)
	}
	slices.Sort(names)
	reads := readByLetter(t, base, names, 20)
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			r, w := reads[run], want[name]
			r.sound(t, "KAI-TOOL-")
			root := r.Profile.Lanes["-"]
			if state := map[bool]string{true: "error", false: "done"}[failed(name)]; root.State != state {
				t.Errorf("the run ends %s, want %s", root.State, state)
			}
			if notByLetter[name] != "" {
				return
			}
			w.check(t, root)
			if !strings.HasPrefix(name, "transcripts/") { // which hold words of others, that only the profile leaves out
				w.check(t, r.Plain.Lanes["-"])
			}
		})
	}
}

// check compares texts and calls.
func (w foreseen) check(t *testing.T, got letterLane) {
	t.Helper()
	if len(w.Streams) > 0 { // of several answers in one file
		rest := got.Text
		for i, s := range w.Streams {
			n := min(s.Text.Bytes, len(rest))
			if !s.Text.is(rest[:n]) {
				t.Errorf("the text of answer %d is %.200q", i, rest[:n])
			}
			rest = rest[n:]
			w.ToolCalls = append(w.ToolCalls, s.ToolCalls...)
		}
		if rest != "" {
			t.Errorf("behind the last answer stands %.200q", rest)
		}
	} else if !w.Text.is(got.Text) && !(w.Text.Bytes == 0 && w.Refusal.is(got.Text)) {
		t.Errorf("the text is %d bytes, want %d: %.300q", len(got.Text), w.Text.Bytes, got.Text)
	}
	if w.Reasoning.SHA256 != "" && !w.Reasoning.is(got.Reasoning) {
		t.Errorf("thoughts are %d bytes, want %d: %.300q", len(got.Reasoning), w.Reasoning.Bytes, got.Reasoning)
	}
	calls := got.Tools
	for _, c := range w.ToolCalls {
		if !c.Complete {
			continue
		}
		i := slices.IndexFunc(calls, func(g letterCall) bool {
			text, free := g.Input.(string)
			return (c.ID == "" || g.CallID == c.ID) && g.Tool == c.Name &&
				(reflect.DeepEqual(g.Input, c.Input) || c.Input == nil && free && c.RawInput.is(text))
		})
		if i < 0 {
			t.Errorf("no call %s of %s with %.300v: %.1000v", c.ID, c.Name, c.Input, calls)
			continue
		}
		calls = slices.Delete(slices.Clone(calls), i, i+1)
	}
}

// TestLetterClient: a client that was written from the protocol's text alone sees every scenario as its log tells it:
// what was said and printed, what was thought, each call with its end, steps, plan, children and how it ended. So it
// does when its connection is cut behind every single event.
func TestLetterClient(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	want := map[string]map[string]*letterLane{}
	for _, s := range schematest.All() {
		if s.Name == "long" {
			continue
		}
		if state := postScenario(t, p.url("/v1/agent/runs/s_"+s.Name+"/events"), s.Events); !state.Final() {
			continue
		}
		want["s_"+s.Name] = toldBy(t, s.Events)
	}
	if len(want) < 8 {
		t.Fatalf("%d scenarios", len(want))
	}
	compareLetter(t, p.url(""), want)
}

// TestLetterClientReadsTheDemo: it sees the runs of the demo's agent as their logs tell them, too.
func TestLetterClientReadsTheDemo(t *testing.T) {
	beside(t)
	for script, gate := range map[string]string{"quick": "", "tour": "preview", "plan": "preview", "failure": ""} {
		t.Run(script, func(t *testing.T) {
			p := newProc(t, "dev", "--demo-script", script, "--demo-gate", gate, "--demo-speed", "50", "--data", t.TempDir())
			p.start()
			demo, _ := readEnded(t, p.url("/v1/agent/runs/demo"))
			compareLetter(t, p.url(""), map[string]map[string]*letterLane{"demo": toldBy(t, demo)})
		})
	}
}

// compareLetter has runs read and holds what is seen to what their events tell.
func compareLetter(t *testing.T, base string, want map[string]map[string]*letterLane) {
	t.Helper()
	runs := make([]string, 0, len(want))
	for run := range want {
		runs = append(runs, run)
	}
	slices.Sort(runs)
	for run, r := range readByLetter(t, base, runs, 0) {
		t.Run(run, func(t *testing.T) {
			r.sound(t, "")
			for id, w := range want[run] {
				got := r.Profile.Lanes[id]
				if got.Text != w.Text || got.Reasoning != w.Reasoning || got.State != w.State || len(got.Tools) != len(w.Tools) ||
					!slices.Equal(got.Steps, w.Steps) || !slices.Equal(got.Spawned, w.Spawned) || len(got.Plans) != len(w.Plans) {
					t.Errorf("lane %s\n got %.2000v\nwant %.2000v", id, got, *w)
				}
				for i := range min(len(got.Tools), len(w.Tools)) {
					if g, w := got.Tools[i], w.Tools[i]; g.CallID != w.CallID || g.Tool != w.Tool || g.Done != w.Done ||
						g.OK != w.OK || !reflect.DeepEqual(g.Input, w.Input) {
						t.Errorf("lane %s: call %+v, want %+v", id, g, w)
					}
				}
			}
			if len(r.Profile.Lanes) != len(want[run]) {
				t.Errorf("%d lanes, want %d", len(r.Profile.Lanes), len(want[run]))
			}
		})
	}
}

// toldBy returns what events tell a person, by lanes.
func toldBy(t *testing.T, events []schema.Event) map[string]*letterLane {
	t.Helper()
	lanes := map[string]*letterLane{}
	for _, e := range events {
		var p struct {
			Text, Tool, State string
			CallID            string `json:"call_id"`
			ChildID           string `json:"child_id"`
			Input             any
			OK                bool
			StepIndex         int `json:"step_index"`
		}
		if info, _ := schema.Lookup(e.Type); !info.Native && e.Type != schema.TypeToolOutputDelta {
			continue
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatalf("%s: %v", e.Payload, err)
		}
		id := e.ChildID
		if id == "" {
			id = "-"
		}
		l := lanes[id]
		if l == nil {
			l = &letterLane{}
			lanes[id] = l
		}
		switch e.Type {
		case schema.TypeTextDelta, schema.TypeToolOutputDelta:
			if e.Actor != "user" {
				l.Text += p.Text
			}
		case schema.TypeReasoningDelta:
			l.Reasoning += p.Text
		case schema.TypeToolStart:
			l.Tools = append(l.Tools, letterCall{CallID: p.CallID, Tool: p.Tool, Input: p.Input})
		case schema.TypeToolEnd:
			for i := len(l.Tools) - 1; i >= 0; i-- {
				if l.Tools[i].CallID == p.CallID {
					l.Tools[i].Done, l.Tools[i].OK = true, p.OK
					break
				}
			}
		case schema.TypeStepBoundary:
			l.Steps = append(l.Steps, p.StepIndex)
		case schema.TypeChildSpawn:
			l.Spawned = append(l.Spawned, p.ChildID)
		case schema.TypePlanProposal:
			l.Plans = append(l.Plans, nil)
		case schema.TypeRunLifecycle:
			l.State = p.State
		}
	}
	return lanes
}

// postScenario appends events to a run as a producer does, and returns the state that they leave it in.
func postScenario(t *testing.T, url string, events []schema.Event) (state schema.RunState) {
	t.Helper()
	var body bytes.Buffer
	for _, e := range events {
		line := map[string]any{"type": e.Type, "payload": e.Payload}
		for name, v := range map[string]string{"child_id": e.ChildID, "turn_id": e.TurnID, "actor": e.Actor} {
			if v != "" {
				line[name] = v
			}
		}
		b, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		body.Write(append(b, '\n'))
		if l, err := schema.ParseLifecycle(e.Payload); err == nil && e.Type == schema.TypeRunLifecycle && e.ChildID == "" {
			state = l.State
		}
	}
	resp, err := http.Post(url, "application/x-ndjson", &body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said := new(bytes.Buffer)
		_, _ = said.ReadFrom(resp.Body)
		t.Fatalf("%s: %d %s", url, resp.StatusCode, said)
	}
	return state
}

// readEnded waits for the end of a run and reads it.
func readEnded(t *testing.T, run string) ([]schema.Event, *schema.Fold) {
	t.Helper()
	eventually(t, time.Minute, run+" to begin and to end", func() bool {
		resp, err := http.Get(run + "/stream")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK && err == nil
	})
	return readBack(t, run)
}
