package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/adapters/provider/providertest"
	"agentstream/internal/testkit"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/schema/schematest"
)

func threadsLong() bool { return os.Getenv("AGENTSTREAM_THREADS") != "" }

// threadEvent is an event of a thread, as it came.
type threadEvent struct {
	raw    string
	ID     string `json:"event_id"`
	Seq    int64
	Method string
}

// threadReplay opens a stream of a thread and reads it to the end of its replay.
func threadReplay(t *testing.T, p *proc, run, body, last string) (all []threadEvent) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", p.url("/threads/"+run+"/stream/events"),
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header.Set("Content-Type", "application/json"); last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadString('\n')
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s behind %q: %d, %v: %s", run, body, last, resp.StatusCode, err, line)
			return nil
		}
		if strings.HasPrefix(line, ": replayed ") {
			return all
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			all = append(all, threadEventOf(t, strings.TrimSuffix(data, "\n")))
		}
	}
}

func threadEventOf(t *testing.T, raw string) (e threadEvent) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &e); err != nil || e.ID == "" {
		t.Errorf("%v: %.300s", err, raw)
	}
	e.raw = raw
	return e
}

// threadSocket subscribes on a socket and reads so many events.
func threadSocket(t *testing.T, p *proc, run, body string, want int) (all []threadEvent) {
	t.Helper()
	c := metisAt(t, p).dial(run, "ws://"+p.addr+"/langgraph/threads/"+run+"/stream/events", "X-Api-Key: "+edgeToken+"\r\n")
	defer c.conn.Close()
	c.write(opText, []byte(`{"id":1,"method":"subscription.subscribe","params":`+body+`}`))
	for i := range want + 1 {
		frame, err := c.read()
		if err != nil {
			t.Errorf("%s %s: %v behind %d events", run, body, err, len(all))
			return all
		}
		if i == 0 {
			if err := langgraphtest.Valid(frame); err != nil || !strings.HasPrefix(string(frame), `{"type":"success","id":1,`) {
				t.Errorf("%v: %s", err, frame)
			}
			continue
		}
		all = append(all, threadEventOf(t, string(frame)))
	}
	c.write(opText, []byte(`{"id":2,"method":"no.such"}`)) // nothing comes before its answer
	if frame, err := c.read(); err != nil || !strings.Contains(string(frame), `"unknown_command"`) {
		t.Errorf("%s %s: %v behind all events: %.300s", run, body, err, frame)
	}
	return all
}

func threadBytes(list []threadEvent) (all []string) {
	for _, e := range list {
		all = append(all, e.raw)
	}
	return all
}

// TestThreadsResume: behind the events of a thread with all channels, of every recording and of random runs, under
// eight filters, over both transports, on the other of two edges, from the log and from PostgreSQL: since and
// Last-Event-ID give the rest, byte for byte. Each frame is valid.
func TestThreadsResume(t *testing.T) {
	beside(t)
	dsn := testkit.Postgres(t)
	url, edges := metisEdges(t, dsn, 2)
	random, each, names := 3, 3, slices.Sorted(maps.Keys(recorded(t)))
	if threadsLong() {
		random, each = 40, 1<<30
	}
	runs := []string{"tall"}
	postLog(t, edges[0].url("/v1/agent/runs/tall/events"), langgraphtest.AllChannels)
	for i, name := range names {
		if threadsLong() || i%12 == 0 {
			run := "trec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
			publishFile(t, edges[0].url(""), run, filepath.Join(providertest.Dir(t), filepath.FromSlash(name)))
			runs = append(runs, run)
		}
	}
	for i := range random {
		run := fmt.Sprintf("tgen_%d", i)
		postScenario(t, edges[0].url("/v1/agent/runs/"+run+"/events"),
			metisOwn(schematest.Generate(60, uint64(i)).Events, run))
		runs = append(runs, run)
	}
	threadsResumeAll(t, "log", edges, runs, each)
	metisForget(t, url, dsn)
	threadsResumeAll(t, "PostgreSQL", edges, runs, each)
}

// postLog stores a log in short.
func postLog(t *testing.T, url, text string) {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		typ, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		child, own, ok := strings.Cut(typ, ":")
		switch {
		case typ == "":
		case ok:
			fmt.Fprintf(&b, `{"type":%q,"child_id":%q,"payload":%s}`+"\n", own, child, payload)
		default:
			fmt.Fprintf(&b, `{"type":%q,"payload":%s}`+"\n", typ, payload)
		}
	}
	resp, err := http.Post(url, "application/x-ndjson", strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

// threadsResumeAll resumes each run behind each of its events, or some; the first one behind all.
func threadsResumeAll(t *testing.T, source string, edges []*proc, runs []string, each int) {
	t.Helper()
	began, count := time.Now(), atomic.Int64{}
	type job struct {
		run, filter string
		at          threadEvent
		rest        []string
		on          *proc
	}
	jobs := make(chan job)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for j := range jobs {
				count.Add(3)
				since := strings.TrimSuffix(j.filter, "}") + fmt.Sprintf(`,"since":%d}`, j.at.Seq)
				for how, got := range map[string][]threadEvent{
					"since": threadReplay(t, j.on, j.run, since, ""), "Last-Event-ID": threadReplay(t, j.on, j.run, j.filter, j.at.ID),
					"a socket": threadSocket(t, j.on, j.run, since, len(j.rest)),
				} {
					if !slices.Equal(threadBytes(got), j.rest) {
						t.Errorf("%s, %s: %s behind %d, %s: %d events, want %d", source, how, j.run, j.at.Seq, j.filter,
							len(got), len(j.rest))
					}
				}
			}
		})
	}
	frames := 0
	for i, run := range runs {
		shown := make([][]threadEvent, len(langgraphtest.Filters))
		for f, filter := range langgraphtest.Filters {
			shown[f] = threadReplay(t, edges[0], run, filter, "")
		}
		for _, e := range shown[0] {
			if err := langgraphtest.Valid([]byte(e.raw)); err != nil {
				t.Errorf("%s: %v", run, err)
			}
			frames++
		}
		picked := rand.Perm(len(shown[0]))
		if i > 0 {
			picked = picked[:min(each, len(picked))]
		}
		for n, at := range picked {
			for f, filter := range langgraphtest.Filters {
				if i > 0 && threadsLong() && f != n%len(langgraphtest.Filters) { // all events, and all filters of the first thread
					continue
				}
				behind := slices.IndexFunc(shown[f], func(e threadEvent) bool { return e.Seq > shown[0][at].Seq })
				rest := []string(nil)
				if behind >= 0 {
					rest = threadBytes(shown[f][behind:])
				}
				jobs <- job{run, filter, shown[0][at], rest, edges[1]}
			}
		}
	}
	close(jobs)
	all.Wait()
	t.Logf("%s: %d threads, %d frames valid, %d resumes, %v", source, len(runs), frames, count.Load(),
		time.Since(began).Round(time.Millisecond))
}
