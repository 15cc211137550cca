package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/adapters/demo"
	"agentstream/internal/natskit"
	pubjs "agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
)

// threadWorkerEnv, in the environment, makes the test binary a worker of threads: the URL of its NATS.
const threadWorkerEnv = "AGENTSTREAM_E2E_THREAD_WORKER"

// serveThreadWorker is the main function of that process. It answers as the demo does, and ends by being killed.
func serveThreadWorker(url string) error {
	ctx := context.Background()
	nc, err := natskit.Dial(url, "worker")
	if err != nil {
		return err
	}
	log, err := pubjs.Open(ctx, nc)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	w, err := worker.New(worker.Config{
		Log: log, Waker: log, Attend: log.Attend, Ask: log.Ask, Logger: logger, Answer: demo.Replies{Speed: 10}.Answer,
		Alone: langgraph.Alone,
	})
	if err != nil {
		return err
	}
	go func() {
		err := log.Follow(ctx, pubjs.FollowConfig{Name: "threads", Again: 500 * time.Millisecond, Logger: logger}, w.Receive)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}()
	return w.Run(ctx)
}

// threadWorld is an edge and two workers, which can be killed.
type threadWorld struct {
	t       *testing.T
	edge    *proc
	workers [2]*service
	cut     atomic.Int64 // commands whose answer never came
}

func newThreadWorld(t *testing.T) *threadWorld {
	url, edges := metisEdges(t, "", 1)
	w := &threadWorld{t: t, edge: edges[0]}
	for i := range w.workers {
		w.workers[i] = newService(t, fmt.Sprint("worker ", i), func() (string, []string, []string) {
			return os.Args[0], nil, []string{threadWorkerEnv + "=" + url}
		})
		w.workers[i].start()
	}
	return w
}

// threadVictims are who is killed at a time: the edge, and workers.
var threadVictims = []struct {
	name    string
	edge    bool
	workers []int
}{
	{"edge", true, nil}, {"both workers", false, []int{0, 1}}, {"edge and both workers", true, []int{0, 1}},
	{"a worker", false, []int{0}}, {"the other worker", false, []int{1}}, {"edge and a worker", true, []int{0}},
}

// threadMoment is what a thread is in when the kill comes. In texts TOKEN is replaced.
type threadMoment struct {
	name  string
	first string // what is said first
	ready string // type of the record after which it is in the moment
	// then is the command that is given at the time of the kill: a method, and its params.
	then, params string
	late         bool // it is given when all are back
}

const respondParams = `{"namespace":[],"interrupt_id":"ask_2","response":"TOKEN-b"}`

var threadMoments = []threadMoment{
	{name: "a run works", first: "think long", ready: schema.TypeTextDelta},
	{name: "an interrupt waits", first: "think interrupt", ready: schema.TypeCommandsTaken, then: "input.respond",
		params: respondParams, late: true},
	{name: "an answer is stored", first: "think interrupt", ready: schema.TypeCommandsTaken, then: "input.respond",
		params: respondParams},
	{name: "an injection is stored", first: "think long", ready: schema.TypeTextDelta, then: "input.inject",
		params: `{"namespace":[],"message":{"role":"user","content":"TOKEN-b"}}`},
	{name: "a queued message is stored", first: "think long", ready: schema.TypeTextDelta, then: "run.start",
		params: `{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"TOKEN-b"}]},"multitask_strategy":"enqueue"}`},
}

// threadTrial is one thread in one moment.
type threadTrial struct {
	*threadMoment
	thread string
	runs   []string // ids that clients were told
}

// give sends a command until it is stored: what became of one whose answer was cut is looked up before it is sent
// again. It reports false when the test is to end.
func (w *threadWorld) give(r *threadTrial, method, params, mark string) bool {
	body := fmt.Sprintf(`{"id":1,"method":%q,"params":%s}`, method, params)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		resp, err := http.Post(w.edge.url("/threads/"+r.thread+"/commands"), "application/json", strings.NewReader(body))
		if err == nil {
			var ans struct {
				Type   string
				Result struct {
					Run string `json:"run_id"`
				}
			}
			text, rerr := io.ReadAll(resp.Body)
			if resp.Body.Close(); rerr == nil && resp.StatusCode == http.StatusOK {
				if err := json.Unmarshal(text, &ans); err != nil || ans.Type != "success" {
					w.t.Errorf("%s, %s: %s is answered with %s", r.thread, r.name, method, text)
					return false
				}
				if ans.Result.Run != "" {
					r.runs = append(r.runs, ans.Result.Run)
				}
				return true
			}
			if resp.StatusCode < 500 && rerr == nil {
				w.t.Errorf("%s, %s: %s: %d %s", r.thread, r.name, method, resp.StatusCode, text)
				return false
			}
		}
		w.cut.Add(1)
		time.Sleep(300 * time.Millisecond) // what was on its way to the log has come
		if all, ok := w.log(r.thread); !ok || slices.ContainsFunc(all, func(e schema.Event) bool {
			return strings.HasPrefix(e.Type, "command.") && strings.Contains(string(e.Payload), mark)
		}) {
			return ok
		}
	}
	w.t.Errorf("%s, %s: %s is not taken", r.thread, r.name, method)
	return false
}

// log returns the records of a thread, when the edge answers.
func (w *threadWorld) log(thread string) (all []schema.Event, ok bool) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(w.edge.url("/v1/agent/runs/" + thread + "/events?limit=1000"))
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		switch resp.Body.Close(); {
		case err == nil && resp.StatusCode == http.StatusNotFound:
			return nil, true
		case err == nil && resp.StatusCode == http.StatusOK:
			for _, line := range splitEvents(w.t, body) {
				e, err := schema.DecodeLine([]byte(line))
				if err != nil {
					w.t.Errorf("%v: %s", err, line)
				}
				all = append(all, e)
			}
			return all, true
		}
	}
	w.t.Errorf("the log of %s cannot be read", thread)
	return nil, false
}

// until waits for a record of a type, or more.
func (w *threadWorld) until(r *threadTrial, what string, ok func([]schema.Event) bool) bool {
	var all []schema.Event
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		there := false
		if all, there = w.log(r.thread); !there || ok(all) {
			return there
		}
	}
	w.t.Errorf("%s, %s: waited in vain for %s:\n%s", r.thread, r.name, what, threadStory(all))
	return false
}

// begin brings the thread into its moment.
func (w *threadWorld) begin(r *threadTrial) bool {
	text := r.first + " " + r.thread + "-a"
	params := fmt.Sprintf(`{"assistant_id":"agent","input":{"messages":[{"role":"user","content":%q}]}}`, text)
	return w.give(r, "run.start", params, text) && w.until(r, r.ready, func(all []schema.Event) bool {
		return slices.ContainsFunc(all, func(e schema.Event) bool { return e.Type == r.ready && e.Seq > 5 })
	})
}

func (w *threadWorld) goOn(r *threadTrial) bool {
	return r.then == "" || w.give(r, r.then, strings.ReplaceAll(r.params, "TOKEN", r.thread), r.thread+"-b")
}

// threadRead is what the log says of a thread.
type threadRead struct {
	asked         map[string]schema.Seq // what people have said: first place of each text
	stored        map[string]int        // and how often
	answered      map[string]int        // turns with a good end in which a text was answered, or heard
	good          []schema.Seq          // ends of those turns
	failed        int                   // turns that were cut
	taken, newest schema.Seq
}

func readThread(all []schema.Event, marks ...string) threadRead {
	r := threadRead{asked: map[string]schema.Seq{}, stored: map[string]int{}, answered: map[string]int{}}
	var said strings.Builder
	for _, e := range all {
		var p struct {
			Text    string
			Stop    string `json:"stop_reason"`
			Through schema.Seq
			Result  struct{ Heard []string }
		}
		_ = json.Unmarshal(e.Payload, &p) // what does not fit is of another type
		switch e.Type {
		case schema.TypeCommandMessage, "command.answer":
			r.newest = e.Seq
			for _, m := range marks {
				if strings.Contains(string(e.Payload), m) {
					r.stored[m]++
					r.asked[m] = e.Seq
				}
			}
		case schema.TypeTurnStart:
			said.Reset()
		case schema.TypeTextDelta, schema.TypeReasoningDelta:
			said.WriteString(p.Text)
		case schema.TypeTaskEnd:
			said.WriteString(strings.Join(p.Result.Heard, " "))
		case schema.TypeCommandsTaken:
			r.taken = max(r.taken, p.Through)
		case schema.TypeTurnEnd:
			if p.Stop != "end_turn" {
				r.failed++
				continue
			}
			r.good = append(r.good, e.Seq)
			for _, m := range marks {
				if strings.Contains(said.String(), m) {
					r.answered[m]++
				}
			}
		}
	}
	return r
}

// threadStory is a log in short.
func threadStory(all []schema.Event) string {
	var b strings.Builder
	for _, e := range all {
		if e.Type != schema.TypeTextDelta && e.Type != schema.TypeReasoningDelta {
			fmt.Fprintf(&b, "%d %s %.200s\n", e.Seq, e.Type, e.Payload)
		}
	}
	return b.String()
}

// judge waits until a thread is at rest: each command in it is stored once and answered once, and each run has one
// terminal. It returns how many of its turns were cut.
func (w *threadWorld) judge(r *threadTrial) int {
	marks := []string{r.thread + "-a"}
	if r.then != "" {
		marks = append(marks, r.thread+"-b")
	}
	var got threadRead
	var all []schema.Event
	if !w.until(r, "rest", func(l []schema.Event) bool {
		all, got = l, readThread(l, marks...)
		return got.newest > 0 && got.taken >= got.newest
	}) {
		return 0
	}
	for _, m := range marks {
		if got.stored[m] != 1 || got.answered[m] != 1 {
			w.t.Errorf("%s, %s: %s is stored %d times and answered %d times:\n%s", r.thread, r.name, m, got.stored[m],
				got.answered[m], threadStory(all))
		}
	}
	want := "completed"
	switch injected := r.then == "input.inject" && got.asked[r.thread+"-b"] < got.good[0]; {
	case strings.Contains(r.first, "interrupt"):
		want = "interrupted completed"
	case r.then != "" && !injected:
		want = "completed completed"
	}
	frames := threadReplay(w.t, w.edge, r.thread, `{"channels":["lifecycle","input"]}`, "")
	ends, err := threadTerminals(frames, r.runs)
	if ends != want || err != nil {
		w.t.Errorf("%s, %s: the runs end with %q, %v, want %q:\n%s\n%s", r.thread, r.name, ends, err, want,
			strings.Join(threadBytes(frames), "\n"), threadStory(all))
	}
	answers := 0
	for _, f := range frames {
		if f.Method == "input.answered" {
			answers++
		}
	}
	if answers != strings.Count(want, "interrupted") {
		w.t.Errorf("%s, %s: %d times input.answered:\n%s", r.thread, r.name, answers, strings.Join(threadBytes(frames), "\n"))
	}
	return got.failed
}

// threadTerminals returns how the runs of a thread end, in their order. Each is said to run once, and to end once
// behind that, before the next one runs; those that clients were told are among them.
func threadTerminals(frames []threadEvent, told []string) (string, error) {
	var ends, seen []string
	under, last := "", int64(0)
	for _, f := range frames {
		var e struct {
			Params struct{ Data struct{ Event string } }
		}
		if err := json.Unmarshal([]byte(f.raw), &e); err != nil {
			return "", err
		}
		if f.Seq <= last {
			return "", fmt.Errorf("seq %d follows %d", f.Seq, last)
		}
		last = f.Seq
		id, synth := strings.CutPrefix(f.ID, "synth:")
		if f.Method != "lifecycle" || !synth {
			continue
		}
		id, _, _ = strings.Cut(id, ":")
		switch event := e.Params.Data.Event; {
		case event == "running" && under == "" && !slices.Contains(seen, id):
			under, seen = id, append(seen, id)
		case event != "running" && under == id:
			ends, under = append(ends, event), ""
		default:
			return strings.Join(ends, " "), fmt.Errorf("%s of %s while %q is under way", event, id, under)
		}
	}
	for _, id := range told {
		if !slices.Contains(seen, id) {
			return strings.Join(ends, " "), fmt.Errorf("run %s, of which a client was told, is not there", id)
		}
	}
	if under != "" {
		return strings.Join(ends, " "), errors.New(under + " has no end")
	}
	return strings.Join(ends, " "), nil
}

// each does something with all trials at a time, and reports whether all went well.
func eachTrial(trials []*threadTrial, do func(*threadTrial) bool) bool {
	var all sync.WaitGroup
	var bad atomic.Bool
	for _, r := range trials {
		all.Go(func() {
			if !do(r) {
				bad.Store(true)
			}
		})
	}
	all.Wait()
	return !bad.Load()
}

// strike kills processes while commands are given, and starts them again.
func (w *threadWorld) strike(k int, rnd *rand.Rand, now []*threadTrial) bool {
	v := threadVictims[k%len(threadVictims)]
	kill, down := time.Duration(rnd.IntN(15000))*time.Microsecond, time.Duration(rnd.IntN(300))*time.Millisecond
	given := make(chan bool, 1)
	go func() { given <- eachTrial(now, w.goOn) }()
	time.Sleep(kill)
	if v.edge {
		w.edge.kill()
	}
	for _, i := range v.workers {
		w.workers[i].kill()
	}
	time.Sleep(down)
	for _, i := range v.workers {
		w.workers[i].start()
	}
	if v.edge {
		w.edge.start()
	}
	return <-given
}

// TestThreadsKilled: edge and workers are killed while a run works, an interrupt waits, and an answer, an injection and
// a queued message are stored: each is answered once, and each run has one terminal.
func TestThreadsKilled(t *testing.T) {
	beside(t)
	w := newThreadWorld(t)
	n, seed := kills(t, 3), uint64(time.Now().UnixNano())
	if threadsLong() {
		n = max(n, 50)
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	began, failed := time.Now(), atomic.Int64{}
	for k := range n {
		var trials, now, late []*threadTrial
		for i := range threadMoments {
			r := &threadTrial{threadMoment: &threadMoments[i], thread: fmt.Sprintf("killed-%d-%d", k, i)}
			if trials = append(trials, r); r.late {
				late = append(late, r)
			} else {
				now = append(now, r)
			}
		}
		if !eachTrial(trials, w.begin) || !w.strike(k, rnd, now) || !eachTrial(late, w.goOn) {
			t.Fatalf("kill %d of %s, seed %d", k+1, threadVictims[k%len(threadVictims)].name, seed)
		}
		eachTrial(trials, func(r *threadTrial) bool { failed.Add(int64(w.judge(r))); return true })
		if t.Failed() {
			t.Fatalf("kill %d of %s, seed %d", k+1, threadVictims[k%len(threadVictims)].name, seed)
		}
	}
	if failed.Load() == 0 {
		t.Error("no kill has cut a turn")
	}
	t.Logf("%d kills, %d threads in %d moments: %d turns were cut, %d answers to commands; each command was answered once, and each run has one terminal; %v",
		n, n*len(threadMoments), len(threadMoments), failed.Load(), w.cut.Load(), time.Since(began).Round(time.Second))
}
