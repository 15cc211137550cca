package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"

	"agentstream/schema"
)

// oneByOne is an upstream that says ten pieces, one after the other, and counts what it was asked by the text of the
// message.
type oneByOne struct {
	pause time.Duration   // behind each piece
	hold  <-chan struct{} // until it is closed there is one piece; nil: nothing is held
	mu    sync.Mutex
	asked map[string]int
}

// pieceOf is a piece of its answer to a text: long enough to be shown at once.
func pieceOf(text string, i int) string {
	return fmt.Sprintf("%s, piece %d of ten that it says; ", text, i)
}

func (u *oneByOne) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var f struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil || len(f.Messages) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	text := f.Messages[0].Content
	u.mu.Lock()
	u.asked[text]++
	hold := u.hold
	u.mu.Unlock()
	for i := range 10 {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%q}}]}\n\n", pieceOf(text, i))
		w.(http.Flusher).Flush()
		if i == 0 && hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		select {
		case <-time.After(u.pause):
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

// scenarioWorld is a deployment that answers scenarios: two edges, two workers, two persisters, PostgreSQL, NATS, and
// an upstream whose model m answers.
type scenarioWorld struct {
	*archiveWorld
	up    *oneByOne
	conns [2]*grpc.ClientConn // to the edges

}

const upstreamKey = "sk-for-the-upstream"

func newScenarioWorld(t *testing.T, up *oneByOne, edge ...string) *scenarioWorld {
	up.asked = map[string]int{}
	w := &scenarioWorld{archiveWorld: newArchiveWorld(t), up: up}
	srv := httptest.NewServer(w.up)
	t.Cleanup(srv.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(upstreamKey), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, e := range w.start(killEdge, "edge", edge...) {
		w.conns[i] = runtimeConn(t, e.addr)
	}
	w.start(killWorker, "worker", "--upstream", "openai="+srv.URL, "--upstream-key", "openai="+key, "--models", "m")
	return w
}

// scenarioTrial is one scenario, and what its client has heard, call by call.
type scenarioTrial struct {
	key   string
	heard []heardScenario
}

// cuts is how often it was cut behind a piece of the answer.
func (r *scenarioTrial) cuts() (n int) {
	for _, h := range r.heard {
		if h.err != nil && h.text != "" {
			n++
		}
	}
	return n
}

// ask asks for a scenario until it has its end: by turns at both edges, with one key. speaking counts those that have
// heard something and not the end.
func (w *scenarioWorld) ask(ctx context.Context, r *scenarioTrial, speaking *atomic.Int64) {
	at := rand.IntN(len(w.conns))
	for ; ; at++ {
		spoke := false
		h, err := hearScenario(ctx, w.conns[at%len(w.conns)], r.key, textScenario("m", r.key),
			func(e *runtimev1.StreamScenarioEvent) {
				if !spoke && e.GetDelta() != nil {
					spoke = true
					speaking.Add(1)
				}
			})
		if spoke {
			speaking.Add(-1)
		}
		r.heard = append(r.heard, h)
		if err != nil {
			w.t.Errorf("%s: %v", r.key, err)
			return
		}
		if h.err == nil {
			return
		}
		// Internal is what grpc-go calls a connection that broke within a message. What the edge says has details.
		st := status.Convert(h.err)
		if cut := st.Code() == codes.Unavailable || st.Code() == codes.Internal && len(st.Details()) == 0; !cut ||
			ctx.Err() != nil {
			w.t.Errorf("%s: %v after %d calls", r.key, h.err, len(r.heard))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// judge holds what the log has of a scenario to what its client has heard. It returns the state that it ended in.
func (w *scenarioWorld) judge(r *scenarioTrial) schema.RunState {
	last := r.heard[len(r.heard)-1]
	url := "http://" + w.roles[killEdge][0].addr + "/v1/agent/runs/" + last.run
	lines := events(w.t, url)
	types := map[string]int{}
	said, state, reason := "", schema.RunState(""), ""
	for _, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		var p struct {
			Text, Reason string
			State        schema.RunState
		}
		if err != nil || json.Unmarshal(e.Payload, &p) != nil {
			w.t.Fatalf("%v: %s", err, line)
		}
		switch types[e.Type]++; e.Type {
		case schema.TypeTextDelta:
			said += p.Text
		case schema.TypeRunLifecycle:
			state, reason = p.State, p.Reason
		}
	}
	complain := func(what string) {
		w.t.Errorf("%s, %s: %s: %+v\n%s", r.key, last.run, what, r.heard, strings.Join(lines, "\n"))
	}
	if types[schema.TypeSessionCreated] != 1 || types[schema.TypeCommandMessage] != 1 ||
		types[schema.TypeTurnStart] > 1 || types[schema.TypeRunLifecycle] != 1 {
		complain("not one scenario with one turn and one end")
	}
	for i, h := range r.heard {
		if h.run != "" && h.run != last.run || !strings.HasPrefix(said, h.text) {
			complain(fmt.Sprintf("what call %d brought is no beginning of %q", i, said))
		}
	}
	whole := ""
	for i := range 10 {
		whole += pieceOf(r.key, i)
	}
	switch {
	case state == schema.StateDone && said == whole && last.text == whole &&
		last.completed.GetFinishReason() == runtimev1.FinishReason_FINISH_REASON_STOP:
	case state == schema.StateError && strings.HasPrefix(reason, "AI_STREAM_BROKEN: ") && strings.HasPrefix(whole, said) &&
		last.failed.GetReasonCode() == runtimev1.ReasonCode_AI_STREAM_BROKEN:
	default:
		complain(fmt.Sprintf("it ended %s %q", state, reason))
	}
	return state
}

// scenarioKills are the parts of the campaign, with what is killed in each.
var scenarioKills = []struct {
	name  string
	kinds []string
}{
	{"edges", []string{killEdge}}, {"workers", []string{killWorker}}, {"NATS", []string{killNATS}},
	{"all", []string{killEdge, killWorker, killNATS}},
}

// campaign asks for n scenarios and more, some at a time, until the last fault has happened. Faults happen while
// answers are given.
func (w *scenarioWorld) campaign(name string, plan []fault, n, together int) (trials []*scenarioTrial) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var over atomic.Bool
	var speaking atomic.Int64
	next := func() *scenarioTrial {
		mu.Lock()
		defer mu.Unlock()
		if len(trials) >= n && over.Load() || w.t.Failed() {
			return nil
		}
		trials = append(trials, &scenarioTrial{key: fmt.Sprintf("%s-%d", name, len(trials))})
		return trials[len(trials)-1]
	}
	var clients sync.WaitGroup
	for range together {
		clients.Go(func() {
			for r := next(); r != nil; r = next() {
				w.ask(ctx, r, &speaking)
			}
		})
	}
	for _, f := range plan {
		time.Sleep(f.gap)
		eventually(w.t, time.Minute, "answers are given",
			func() bool { return speaking.Load() >= int64(together/2) || w.t.Failed() })
		w.strike(f)
	}
	w.back("")
	over.Store(true)
	clients.Wait()
	return trials
}

// TestRuntimeKilled kills edges, workers and NATS, each for itself and all in turn, while scenarios are answered. Each
// scenario ends once, what its client had before a cut is the beginning of the run, the same key brings the same run
// from its beginning, and no model is asked twice.
func TestRuntimeKilled(t *testing.T) {
	beside(t)
	n, faults, together, parts := 20, 6, 8, scenarioKills[len(scenarioKills)-1:]
	if runtimeLong() {
		n, faults, together, parts = 200, 25, 20, scenarioKills
	}
	w, seed := newScenarioWorld(t, &oneByOne{pause: 50 * time.Millisecond}), uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var all []*scenarioTrial
	for i, c := range parts {
		began := time.Now()
		trials := w.campaign(c.name, faultPlan(c.kinds, faults, seed+uint64(i)), n, together)
		if t.Failed() {
			t.FailNow()
		}
		ends, cuts := map[schema.RunState]int{}, 0
		for _, r := range trials {
			ends[w.judge(r)]++
			cuts += r.cuts()
		}
		t.Logf("%s killed: %d scenarios, %d completed, %d failed, %d streams cut behind a piece; %v", c.name, len(trials),
			ends[schema.StateDone], ends[schema.StateError], cuts, time.Since(began).Round(time.Second))
		if ends[schema.StateDone] == 0 || slices.Contains(c.kinds, killWorker) && ends[schema.StateError] == 0 ||
			slices.Contains(c.kinds, killEdge) && cuts == 0 {
			t.Errorf("%s killed: it proves nothing", c.name)
		}
		all = append(all, trials...)
	}
	w.again(all)
	t.Log(w.fired)
}

// again asks for all once more, when all is over: each key brings the run that it brought before, no model is asked,
// and the archive has what the log has.
func (w *scenarioWorld) again(all []*scenarioTrial) {
	for _, c := range w.conns { // after an edge was killed, a client may refuse by itself until it dials again
		c.ResetConnectBackoff()
		eventually(w.t, time.Minute, "a connection to an edge", func() bool {
			c.Connect()
			return c.GetState() == connectivity.Ready
		})
	}
	for i, r := range all {
		last := r.heard[len(r.heard)-1]
		h, err := hearScenario(w.t.Context(), w.conns[i%2], r.key, textScenario("m", r.key),
			func(*runtimev1.StreamScenarioEvent) {})
		if err != nil || h.err != nil || h.run != last.run || h.text != last.text ||
			(h.completed == nil) != (last.completed == nil) {
			w.t.Errorf("%s: once more it is %+v, %v; it was %+v", r.key, h, err, last)
		}
	}
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	for text, n := range maps.All(w.up.asked) {
		if n != 1 {
			w.t.Errorf("%s: a model was asked %d times", text, n)
		}
	}
	for _, r := range w.roles[killWorker] {
		if strings.Contains(r.log.String(), upstreamKey) {
			w.t.Error("the credential is in the log of a worker")
		}
	}
	eventually(w.t, time.Minute, "the persisters have caught up", func() bool {
		left, err := pending(w.t.Context(), w.nats.url(), w.dsn)
		return err == nil && left == 0
	})
	for _, complaint := range judgeArchive(readLog(w.t, w.nats.url()), readArchive(w.t, w.dsn), nil) {
		w.t.Error(complaint)
	}
}
