package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// cutsPerStream is how often each stream is cut inside a frame.
const cutsPerStream = 200

// TestSessionCuts cuts streams of sessions and of threads, with increments and without, at 200 random bytes inside
// frames each, and goes on behind the last whole frame at another edge, while the sessions are written and one
// edge is killed: together every frame once, byte for byte those of a stream that was never cut, which are those
// of the history.
func TestSessionCuts(t *testing.T) {
	beside(t)
	w := edgesFor(t, "http://page.test")
	s := &cutSessions{t: t, w: w, story: sessionStory(t)}
	var streams []*cutStream
	for _, increments := range []bool{true, false} {
		id := s.create(increments)
		coordinator, child := s.begin(id)
		for _, path := range []string{"", "/threads/" + coordinator, "/threads/" + child} {
			streams = append(streams, &cutStream{s: s, session: id, thread: path, increments: increments,
				rng: rand.New(rand.NewPCG(5, uint64(len(streams))))})
		}
	}
	var all sync.WaitGroup
	for _, c := range streams {
		all.Go(c.follow)
	}
	s.tell(streams)
	s.written.Store(true)
	all.Wait()
	for _, c := range streams {
		c.check()
	}
	s.strangers(streams)
}

// cutSessions is what the streams have in common.
type cutSessions struct {
	t       *testing.T
	w       world
	story   [][]byte // batches of NDJSON
	written atomic.Bool
}

// sessionStory is what is said: everything hard, several times over, and never an end.
func sessionStory(t *testing.T) (batches [][]byte) {
	t.Helper()
	for range 6 {
		for _, name := range []string{"plain", "children", "unicode", "parallel-tools", "hostile", "tool", "native"} {
			var body []byte
			for _, e := range schematest.ByName(name).Events {
				if e.Type == schema.TypeRunLifecycle {
					continue
				}
				e.ID, e.RunID, e.Seq, e.FirstSeq, e.Path, e.Cause = "", "", 0, 0, nil, ""
				line, err := json.Marshal(struct {
					Type    string          `json:"type"`
					ChildID *string         `json:"child_id,omitempty"`
					TurnID  string          `json:"turn_id,omitempty"`
					Payload json.RawMessage `json:"payload"`
				}{e.Type, orNil(e.ChildID), e.TurnID, json.RawMessage("{}")})
				if err != nil {
					t.Fatal(err)
				}
				// The payload is put in as it is: what it escapes, and how, is a part of it.
				line = bytes.Replace(line, []byte(`"payload":{}`), append([]byte(`"payload":`), payloadOf(e)...), 1)
				body = append(append(body, line...), '\n')
			}
			batches = append(batches, body)
		}
	}
	return batches
}

func payloadOf(e schema.Event) []byte {
	if len(e.Payload) == 0 {
		return []byte("{}")
	}
	return e.Payload
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (s *cutSessions) send(method, path, body string) []byte {
	s.t.Helper()
	for _, edge := range []int{1, 0} { // the second is never killed
		req, err := http.NewRequestWithContext(s.t.Context(), method, s.w.edges[edge].url(path), strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.Contains(path, "/agent/") {
			req.Header.Set("Content-Type", "application/x-ndjson")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode/100 != 2 {
			s.t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, b, err)
		}
		return b
	}
	s.t.Fatalf("%s %s: no edge answers", method, path)
	return nil
}

func (s *cutSessions) create(increments bool) string {
	var out struct {
		ID string `json:"id"`
	}
	body := s.send("POST", "/api/v1/cloud/sessions",
		fmt.Sprintf(`{"agent":"agent_1","environment_id":"env_1","incremental_streaming_enabled":%v}`, increments))
	if err := json.Unmarshal(body, &out); err != nil || out.ID == "" {
		s.t.Fatalf("create: %s", body)
	}
	return out.ID
}

// begin writes the first batches, so that there are threads, and returns the coordinator's and a child's.
func (s *cutSessions) begin(session string) (coordinator, child string) {
	s.t.Helper()
	for _, b := range s.story[:2] {
		s.send("POST", "/v1/agent/runs/"+session+"/events", string(b))
	}
	var out struct {
		Data []struct{ ID, Role string } `json:"data"`
	}
	body := s.send("GET", "/api/v1/cloud/sessions/"+session+"/threads", "")
	if err := json.Unmarshal(body, &out); err != nil || len(out.Data) < 2 || out.Data[0].Role != "coordinator" ||
		out.Data[1].Role != "child" {
		s.t.Fatalf("threads: %s", body)
	}
	return out.Data[0].ID, out.Data[1].ID
}

// tell writes the rest of all sessions, and kills an edge on the way.
func (s *cutSessions) tell(streams []*cutStream) {
	sessions := map[string]bool{}
	for _, c := range streams {
		sessions[c.session] = true
	}
	for i, b := range s.story[2:] {
		for session := range sessions {
			s.send("POST", "/v1/agent/runs/"+session+"/events", string(b))
		}
		switch i {
		case 10:
			s.w.edges[0].kill()
		case 16:
			s.w.edges[0].start()
		}
		time.Sleep(20 * time.Millisecond) // so that the streams see it come
	}
}

// cutStream is one stream that is cut again and again.
type cutStream struct {
	s          *cutSessions
	session    string
	thread     string // "/threads/…" or ""
	increments bool
	rng        *rand.Rand

	got  []string // whole frames
	last string   // id of the last one
	cuts int      // inside a frame
}

// path is where the stream is: by its own path, or, asked for by Accept, by that of the history.
func (c *cutStream) path(history bool) string {
	switch {
	case history:
		return "/api/v1/cloud/sessions/" + c.session + c.thread + "/events"
	case c.thread == "":
		return "/api/v1/cloud/sessions/" + c.session + "/events/stream"
	}
	return "/api/v1/cloud/sessions/" + c.session + c.thread + "/stream"
}

// follow reads and is cut, until it was cut often enough and everything is written, then reads what is left.
func (c *cutStream) follow() {
	for c.cuts < cutsPerStream || !c.s.written.Load() {
		c.read(int64(20 + c.rng.IntN(400*(1+c.rng.IntN(8)))))
		if c.s.t.Failed() || c.s.t.Context().Err() != nil {
			return
		}
		if c.cuts > 2*cutsPerStream && !c.s.written.Load() {
			time.Sleep(5 * time.Millisecond) // the writer is slower than this
		}
		if c.cuts < cutsPerStream && c.s.written.Load() && c.finished() {
			c.got, c.last = nil, "" // once more from the start
		}
	}
}

// finished reports whether there is nothing behind what it has.
func (c *cutStream) finished() bool { return len(c.got) >= len(c.history()) }

// read takes whole frames out of the next so many bytes of a connection to some edge.
func (c *cutStream) read(bytes int64) {
	history := c.rng.IntN(2) == 0
	req, err := http.NewRequestWithContext(c.s.t.Context(), http.MethodGet,
		c.s.w.edges[c.rng.IntN(2)].url(c.path(history)), nil)
	if err != nil {
		c.s.t.Error(err)
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	if c.last != "" {
		req.Header.Set("Last-Event-ID", c.last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return // the edge that was killed
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusServiceUnavailable {
			c.s.t.Errorf("%s behind %q: %d %s", c.path(history), c.last, resp.StatusCode, b)
		}
		return
	}
	stop := time.AfterFunc(300*time.Millisecond, func() { resp.Body.Close() }) // when there is nothing more
	defer stop.Stop()
	lines := bufio.NewReader(io.LimitReader(resp.Body, bytes))
	var frame strings.Builder
	id := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if frame.Len()+len(line) > 0 {
				c.cuts++
			}
			return
		}
		switch {
		case line == "\n" && id != "":
			c.got, c.last = append(c.got, frame.String()), id
			frame.Reset()
			id = ""
		case strings.HasPrefix(line, "id: "):
			id = strings.TrimSpace(line[4:])
			frame.WriteString(line)
		case strings.HasPrefix(line, "event: "), strings.HasPrefix(line, "data: "):
			frame.WriteString(line)
		}
	}
}

// history returns the objects of the stream's history.
func (c *cutStream) history() (list []json.RawMessage) {
	c.s.t.Helper()
	page := ""
	for {
		var out struct {
			Data     []json.RawMessage `json:"data"`
			NextPage *string           `json:"next_page"`
		}
		body := c.s.send("GET", c.path(true)+"?limit=200"+page, "")
		if err := json.Unmarshal(body, &out); err != nil {
			c.s.t.Fatalf("history: %v: %s", err, body)
		}
		list = append(list, out.Data...)
		if out.NextPage == nil {
			return list
		}
		page = "&page=" + *out.NextPage
	}
}

// check reads the rest without a cut and compares everything with the history.
func (c *cutStream) check() {
	t := c.s.t
	t.Helper()
	want := c.history()
	for range 100 {
		if len(c.got) >= len(want) {
			break
		}
		c.read(1 << 40)
	}
	kinds := map[string]int{}
	for i, frame := range c.got {
		if i >= len(want) {
			t.Errorf("%s: %d frames, %d in the history", c.path(false), len(c.got), len(want))
			break
		}
		var e struct{ ID, Type string }
		if err := json.Unmarshal(want[i], &e); err != nil {
			t.Fatal(err)
		}
		kinds[e.Type]++
		if whole := "event: " + e.Type + "\ndata: " + string(want[i]) + "\nid: " + e.ID + "\n"; frame != whole {
			t.Errorf("%s: frame %d is\n%.400s, the history has\n%.400s", c.path(false), i, frame, whole)
			break
		}
	}
	if len(c.got) < len(want) {
		t.Errorf("%s: %d frames, %d in the history", c.path(false), len(c.got), len(want))
	}
	deltas := kinds["agent.content_block_delta"] + kinds["agent.message_start"] + kinds["agent.message_stop"]
	if (deltas > 0) != c.increments || kinds["agent.message"] == 0 {
		t.Errorf("%s, increments %v: %v", c.path(false), c.increments, kinds)
	}
	t.Logf("%s%s, increments %v: %d frames, cut inside one %d times", c.session, c.thread, c.increments, len(c.got),
		c.cuts)
}

// strangers shows that ids of other sessions and of other threads are no cursors.
func (s *cutSessions) strangers(streams []*cutStream) {
	for i, c := range streams {
		other := streams[(i+2)%3+i/3*3] // of the same session, another thread: what it alone has
		foreign := streams[(i+3)%len(streams)].last
		for _, id := range []string{foreign, "evt_1", "evt_" + strings.Repeat("0", 32), own(other, c)} {
			if id == "" {
				continue
			}
			req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.w.edges[0].url(c.path(false)), nil)
			if err != nil {
				s.t.Fatal(err)
			}
			req.Header.Set("Last-Event-ID", id)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				s.t.Fatal(err)
			}
			b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest || !bytes.Contains(b, []byte(`"invalid_request_error"`)) {
				s.t.Errorf("%s behind %s: %d %s", c.path(false), id, resp.StatusCode, b)
			}
		}
	}
}

// own returns the id of a frame that one stream has and the other has not; "" when there is none.
func own(has, not *cutStream) string {
	seen := map[string]bool{}
	for _, f := range not.got {
		seen[f] = true
	}
	for _, f := range has.got {
		if !seen[f] {
			_, id, _ := strings.Cut(strings.TrimSuffix(f, "\n"), "\nid: ")
			return id
		}
	}
	return ""
}
