package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/protocols/metis/metistest"
)

// metisDev is a server with an agent behind it that answers at twice its pace.
func metisDev(t *testing.T, more ...string) metis {
	t.Helper()
	p := newProc(t, "dev", append([]string{"--demo-speed", "2", "--data", t.TempDir()}, more...)...)
	p.start()
	return metisAt(t, p)
}

// metisLong reports whether everything is proven: make metis.
func metisLong() bool { return os.Getenv("AGENTSTREAM_METIS") != "" }

// TestMetisRequired has the required tests of the protocol's text (11.1), by their numbers.
func TestMetisRequired(t *testing.T) {
	beside(t)
	m := metisDev(t)
	for name, test := range map[string]func(*testing.T, metis){
		"01 happy path":                    metisHappyPath,
		"02 snapshot in mid-session":       metisSnapshot,
		"03 reconnect with replay":         metisReconnect,
		"04 replay too large":              metisTooLarge,
		"06 identical streams":             metisIdentical,
		"10 cancelled twice is once":       metisCancelTwice,
		"12 workers hidden and included":   metisWorkers,
		"13 filters are checked":           metisFilterChecked,
		"14 types that nobody knows":       metisUnknownTypes,
		"16 seam of snapshot and stream":   metisSeam,
		"bad input on the socket":          metisBadInput,
		"bad input over HTTP":              metisBadRequests,
		"confirmations":                    metisConfirmations,
		"sessions that end":                metisEnds,
		"a turn's end and its cancel race": metisRace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := m
			m.t = t
			test(t, m)
		})
	}
}

const metisPlain = "turn.started route.decided llm.call_started message.start text.delta message.complete llm.call_completed turn.completed"

func metisHappyPath(t *testing.T, m metis) {
	for text, want := range map[string]string{
		"hello": metisPlain,
		"think": strings.Replace(metisPlain, "text.delta", "thinking.delta text.delta", 1),
		"use the tools": `turn.started route.decided llm.call_started message.start text.delta
			tool.use_start tool.use_input_delta tool.use_end tool.use_start tool.use_input_delta tool.use_end message.complete llm.call_completed
			tool.called tool.called tool.completed tool.completed
			llm.call_started message.start text.delta message.complete llm.call_completed turn.completed`,
	} {
		session := m.create()
		c := m.watch(session, metisChat, "", true)
		if c.ack.Replay != 0 || len(c.ack.Filter["event_types"].([]any)) != len(metisChatTypes) {
			t.Errorf("ack %+v", c.ack)
		}
		turn := m.say(session, text)
		c.turnEnd()
		if got := c.story(); got != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
		if len(c.fold.Replaced) > 0 {
			t.Errorf("%s: what was streamed is not the final content of %v", text, c.fold.Replaced)
		}
		known := map[string]bool{}
		for _, e := range c.events {
			if e.Turn == nil || *e.Turn != turn {
				t.Errorf("the POST says turn %s, the event %s", turn, e.raw)
			}
			if root := e.Type == "turn.started"; root != (e.Parent == nil) || !root && !known[*e.Parent] {
				t.Errorf("the parent is not an event before: %s", e.raw)
			}
			known[e.ID] = true
		}
		if got, want := bytesOf(m.events(session)),
			bytesOf(c.events); !slices.Equal(metisSame(t, got[len(got)-len(want):]), metisSame(t, want)) {
			t.Errorf("%s: GET …/events has other events", text)
		}
	}
}

// metisSame writes JSON in one way.
func metisSame(t *testing.T, list []string) []string {
	t.Helper()
	out := make([]string, len(list))
	for i, text := range list {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(b)
	}
	return out
}

func metisSnapshot(t *testing.T, m metis) {
	session := m.create()
	whole := m.watch(session, metisAll, "", true)
	m.say(session, "hello")
	whole.turnEnd()
	turn := m.say(session, "long")
	for range 20 {
		whole.until("text.delta")
	}
	late := m.watch(session, metisFull, "", true)
	var s struct {
		Session struct {
			Turn   string `json:"current_turn_id"`
			Status string `json:"current_turn_status"`
			Turns  int    `json:"turn_count"`
		}
		Messages []struct {
			Role     string
			Content  []struct{ Text string }
			Metadata struct{ Status string }
		}
	}
	if err := json.Unmarshal(late.snapshot, &s); err != nil || s.Session.Turn != turn ||
		s.Session.Status != "in_flight" || len(s.Messages) != 4 {
		t.Fatalf("%v: %s", err, late.snapshot)
	}
	if last := s.Messages[3]; last.Metadata.Status != "partial" || last.Role != "assistant" ||
		len(strings.Fields(last.Content[0].Text)) < 10 {
		t.Errorf("what is under way: %+v", last)
	}
	at := late.fold.Snapshot
	late.turnEnd()
	whole.turnEnd()
	metisBehind(t, late, at, whole)
}

// metisBehind holds what a client got behind a snapshot to what the other got all the time.
func metisBehind(t *testing.T, late *metisConn, at string, whole *metisConn) {
	t.Helper()
	i := slices.IndexFunc(whole.events, func(e metisEvent) bool { return e.ID > at })
	if i < 0 {
		i = len(whole.events)
	}
	var rest []metisEvent
	for _, e := range whole.events[i:] {
		if e.Session == late.fold.Session {
			rest = append(rest, e)
		}
	}
	if got, want := bytesOf(late.events), bytesOf(rest); !slices.Equal(got, want) {
		t.Errorf("behind the snapshot at %s came\n%s\nwant\n%s", at, late.story(), metisStory(late.fold.Session, rest))
	}
	for _, e := range late.events {
		if e.ID <= at {
			t.Errorf("%s is in the snapshot, %s", e.raw, at)
		}
	}
	spoken := func(all []*metistest.ClientMessage) (out []string) {
		for _, m := range all {
			if m.Role == "assistant" {
				b, err := json.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, string(b))
			}
		}
		return out
	}
	got, want := spoken(late.fold.Messages), spoken(whole.fold.Messages)
	if len(want) > len(got) && len(got) >= 20 {
		want = want[len(want)-len(got):]
	}
	if !slices.Equal(got, want) {
		t.Errorf("the snapshot with the rest shows\n%s\nwant\n%s", got, want)
	}
	if len(late.fold.Replaced) > 0 {
		t.Errorf("what was streamed is not the final content of %v", late.fold.Replaced)
	}
}

func metisReconnect(t *testing.T, m metis) {
	session := m.create()
	whole := m.watch(session, metisFull, "", true)
	cut := m.watch(session, metisFull, "", true)
	m.say(session, "think, and use a tool")
	for range 12 {
		if _, err := cut.event(); err != nil {
			t.Fatal(err)
		}
	}
	cut.close()
	whole.turnEnd()
	rest := m.watch(session, metisFull, cut.fold.Last, false)
	if want := len(whole.events) - len(cut.events); rest.ack.Replay != want {
		t.Errorf("%d events are said to be missed, want %d", rest.ack.Replay, want)
	}
	rest.turnEnd()
	if got := append(bytesOf(cut.events), bytesOf(rest.events)...); !slices.Equal(got, bytesOf(whole.events)) {
		t.Errorf("%s and then %s are not %s", cut.story(), rest.story(), whole.story())
	}
	if got := rest.quiet(); got != "" {
		t.Errorf("behind the rest came %s", got)
	}
}

// appendText appends so many pieces of text to a run, through the native protocol.
func (m metis) appendText(session string, pieces int, text string) {
	m.t.Helper()
	native := strings.TrimSuffix(m.base, "/metis") + "/v1/agent/runs/" + session + "/events"
	for at := 0; at < pieces; {
		var b strings.Builder
		for n := 0; n < 250 && at < pieces; n++ { // a larger pack would be a backlog by itself
			fmt.Fprintf(&b, `{"type":"text.delta","payload":{"text":"%d %s","index":0}}`+"\n", at, text)
			at++
		}
		m.append(native, b.String())
	}
}

func (m metis) append(native, lines string) {
	m.t.Helper()
	resp, err := http.Post(native, "application/x-ndjson", strings.NewReader(lines))
	if err != nil {
		m.t.Error(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		m.t.Errorf("append: %s", resp.Status)
	}
}

// open begins a message of a session that an agent of the test's speaks in.
func (m metis) open(session string) {
	m.t.Helper()
	m.append(strings.TrimSuffix(m.base, "/metis")+"/v1/agent/runs/"+session+"/events", `{"type":"run.lifecycle","payload":{"state":"running"}}
{"type":"turn.start","payload":{"turn_id":"t1"}}
{"type":"message.start","payload":{"message_id":"m1","role":"assistant"}}
{"type":"block.start","payload":{"index":0,"kind":"text","message_id":"m1"}}
`)
}

// Exactly 10,000 events of those that the filter shows are replayed, one more is too many, and a snapshot helps. What
// the filter hides does not count.
func metisTooLarge(t *testing.T, m metis) {
	session := m.create()
	c := m.watch(session, metisFull, "", true)
	m.open(session)
	c.until("message.start")
	m.appendText(session, 10_000, "x")
	texts := map[string]any{"event_types": []string{"text.delta"}, "actors": nil, "include_worker_sessions": false}
	since := c.fold.Last
	exact := m.watch(session, texts, since, false)
	for range 10_000 {
		exact.until("text.delta")
	}
	if exact.ack.Replay != 10_000 {
		t.Errorf("%d events are said to be missed", exact.ack.Replay)
	}
	m.appendText(session, 1, "y")
	exact.until("text.delta")
	for range 2 {
		again := m.attach(session)
		if code := again.subscribe(texts, since, false); code != "replay_too_large" {
			t.Errorf("%q", code)
		}
		if code := again.subscribe(map[string]any{"event_types": []string{"turn.started"}, "actors": nil,
			"include_worker_sessions": false}, since, false); code != "" || again.ack.Replay != 0 {
			t.Errorf("nothing of what is shown was missed: %q %+v", code, again.ack)
		}
		snap := m.watch(session, texts, since, true) // snapshot wins
		if snap.ack.Replay != 0 || snap.quiet() != "" {
			t.Errorf("a snapshot with a cursor replays: %+v", snap.ack)
		}
		m.appendText(session, 5_000, "z")
	}
}

// Without an archive, what the window has dropped is gone: a cursor before it has expired, and one behind it has not.
func TestMetisCursorExpired(t *testing.T) {
	beside(t)
	url, edges := metisEdges(t, "", 1)
	m := metisAt(t, edges[0])
	session := m.create()
	c := m.watch(session, metisFull, "", true)
	first := c.fold.Last
	m.open(session)
	for range 12 {
		m.appendText(session, 250, strings.Repeat("x", 500))
		for range 250 {
			c.until("text.delta")
		}
	}
	middle := c.events[len(c.events)/2].ID
	metisDrop(t, url, func(last uint64) uint64 { return last - 1 })
	for since, want := range map[string]string{first: "cursor_expired", middle: "cursor_expired", c.fold.Last: "",
		"evt_" + strings.Repeat("0", 30): "cursor_expired"} {
		again := m.attach(session)
		if code := again.subscribe(metisFull, since, false); code != want {
			t.Errorf("behind %s: %q, want %q", since, code, want)
		}
		if want == "" {
			continue
		}
		if code := again.subscribe(metisFull, "", true); code != "" {
			t.Errorf("with a snapshot: %q", code)
		}
	}
	other := m.create()
	if code := m.attach(other).subscribe(metisFull, c.fold.Last, false); code != "cursor_expired" {
		t.Errorf("a cursor of another session: %q", code)
	}
}

func metisIdentical(t *testing.T, m metis) {
	session := m.create()
	a, b := m.watch(session, metisChat, "", true), m.watch(session, metisChat, "", true)
	m.say(session, "delegate, and think")
	a.turnEnd()
	b.turnEnd()
	if !slices.Equal(bytesOf(a.events), bytesOf(b.events)) || !slices.Equal(a.ids(), b.ids()) {
		t.Errorf("%s and %s", a.story(), b.story())
	}
}

func (c *metisConn) ids() (out []string) {
	for _, e := range c.events {
		out = append(out, e.ID)
	}
	return out
}

func metisWorkers(t *testing.T, m metis) {
	session := m.create()
	hidden, shown := m.watch(session, metisFull, "", true), m.watch(session, metisAll, "", true)
	m.say(session, "delegate")
	worker := shown.until("delegate.started").p.WorkerSession
	direct := m.watch(worker, metisFull, "", true)
	hidden.turnEnd()
	shown.turnEnd()
	if got := hidden.story(); strings.Contains(got, "[") ||
		!strings.Contains(got, "tool.called delegate.started delegate.completed tool.completed") {
		t.Errorf("hidden: %s", got)
	}
	var own, theirs []metisEvent
	for _, e := range shown.events {
		if e.Session == session {
			own = append(own, e)
			continue
		}
		theirs = append(theirs, e)
		if e.Session != worker || e.Actor != "worker" {
			t.Errorf("an event of the worker is %s", e.raw)
		}
	}
	if !slices.Equal(bytesOf(own), bytesOf(hidden.events)) || !strings.Contains(metisStory(worker, theirs), metisPlain) {
		t.Errorf("shown: %s", shown.story())
	}
	if end := direct.closed(); end.code != 1000 {
		t.Errorf("the worker's stream ends with %v", end)
	}
	at := direct.fold.Snapshot
	i := slices.IndexFunc(theirs, func(e metisEvent) bool { return e.ID > at })
	if i < 0 {
		i = len(theirs)
	}
	if !slices.Equal(bytesOf(direct.events), bytesOf(theirs[i:])) {
		t.Errorf("attached directly behind %s: %s\nwant %s", at, direct.story(), metisStory(worker, theirs[i:]))
	}
	if s := m.must(200, "GET", "/sessions/"+worker, nil); s["parent_session_id"] != session {
		t.Errorf("the worker's session does not name its parent: %v", s)
	}
}

func metisFilterChecked(t *testing.T, m metis) {
	session := m.create()
	c := m.attach(session)
	for name, filter := range map[string]any{
		"made.up.thing": map[string]any{"event_types": []string{"text.delta", "made.up.thing"}, "actors": nil,
			"include_worker_sessions": false},
		"robot":       map[string]any{"event_types": nil, "actors": []string{"robot"}, "include_worker_sessions": false},
		"preset:none": "preset:none", "a number": 7, "nothing": nil,
		"a list":  map[string]any{"event_types": "text.delta"},
		"a yes":   map[string]any{"event_types": nil, "actors": nil, "include_worker_sessions": "yes"},
		"a mixed": map[string]any{"event_types": []any{"text.delta", 3}},
	} {
		c.send(map[string]any{"type": "subscribe", "filter": filter, "since": nil, "snapshot": true})
		typ, frame, err := c.frame()
		if err != nil || typ != "subscribe_error" || !strings.Contains(string(frame), `"invalid_filter"`) ||
			strings.Contains(name, ".") && !strings.Contains(string(frame), name) {
			t.Errorf("%s: %s %v", name, frame, err)
		}
	}
	types, err := metistest.Types()
	if err != nil {
		t.Fatal(err)
	}
	if code := c.subscribe(map[string]any{"event_types": types, "actors": nil, "include_worker_sessions": false}, "",
		false); code != "" || len(c.ack.Filter["event_types"].([]any)) != len(types) {
		t.Errorf("all types of both families: %q, %v", code, c.ack.Filter)
	}
	full := m.watch(session, metisFull, "", false)
	if f := full.ack.Filter; f["event_types"] != nil || f["actors"] != nil || f["include_worker_sessions"] != false {
		t.Errorf("preset:full is %v", f)
	}
}

func metisUnknownTypes(t *testing.T, m metis) {
	session := m.create()
	all, chat := m.watch(session, metisFull, "", true), m.watch(session, metisChat, "", true)
	m.append(strings.TrimSuffix(m.base, "/metis")+"/v1/agent/runs/"+session+"/events", `{"type":"custom.quantum.entangled","payload":{"x":[1]}}
{"type":"custom.metis.memory.updated","payload":{"file":"USER.md","operation":"add","before_hash":"a","after_hash":"b","before_size_bytes":1,"after_size_bytes":2}}
`)
	m.say(session, "hello")
	all.turnEnd()
	chat.turnEnd()
	if all.fold.Skipped != 1 || !strings.HasPrefix(all.story(),
		"custom.quantum.entangled memory.updated turn.started") || len(all.fold.Messages) != 1 {
		t.Errorf("all: %d were passed over, %s", all.fold.Skipped, all.story())
	}
	if chat.fold.Skipped != 0 || chat.story() != "memory.updated "+metisPlain {
		t.Errorf("chat: %s", chat.story())
	}
}

// TestMetisHeartbeat: a client that is idle is sent pings, and one that leaves three without an answer is closed (15).
func TestMetisHeartbeat(t *testing.T) {
	beside(t)
	m := metisDev(t, "--metis-heartbeat", "1s")
	session := m.create()
	answers, deaf := m.watch(session, metisFull, "", true), m.watch(session, metisFull, "", true)
	deaf.deaf = true
	var reading sync.WaitGroup
	reading.Go(func() { answers.turnEnd() })
	if end := deaf.closed(); end.code != 1001 || deaf.pings != 3 {
		t.Errorf("%v behind %d pings", end, deaf.pings)
	}
	m.say(session, "hello")
	reading.Wait()
	if answers.pings < 3 {
		t.Errorf("%d pings", answers.pings)
	}
}

// Clients attach while the agent speaks: each has every event once.
func metisSeam(t *testing.T, m metis) {
	session := m.create()
	whole := m.watch(session, metisAll, "", true)
	var all sync.WaitGroup
	const clients = 12
	late := make([]*metisConn, clients)
	m.say(session, "long tools")
	for i := range late {
		whole.until("text.delta", "tool.use_input_delta")
		all.Go(func() {
			c := m.watch(session, metisFull, "", true)
			if c.turnEnd(); true {
				late[i] = c
			}
		})
	}
	whole.turnEnd()
	all.Wait()
	for _, c := range late {
		if c == nil {
			t.Fatal("a client has not come to the end")
		}
		metisBehind(t, c, c.fold.Snapshot, whole)
	}
}

// TestMetisConformance holds the fold in TypeScript to the suite (11.3) that the one in Go is held to.
func TestMetisConformance(t *testing.T) {
	beside(t)
	node := program(t, "node")
	tsc := filepath.Join(tsClient, "node_modules/typescript/bin/tsc")
	if _, err := os.Stat(tsc); err != nil {
		missing(t, "the packages of "+tsClient+" are not installed")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(node, tsc, "--strict", "--noUncheckedIndexedAccess", "--target", "es2023", "--module",
		"esnext",
		"--moduleResolution", "bundler", "--outDir", dir,
		filepath.Join(jsDir, "metis-fold.ts")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cases, err := filepath.Glob("../../protocols/metis/metistest/conformance/*.json")
	if err != nil || len(cases) < 30 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	out, err := exec.Command(node, append([]string{filepath.Join(jsDir, "metis-conformance.mjs"), dir},
		cases...)...).CombinedOutput()
	if want := fmt.Sprintf("%d of %d\n", len(cases), len(cases)); err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}
