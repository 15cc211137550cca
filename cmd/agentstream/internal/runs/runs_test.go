package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/schema"
)

// listing serves a list of runs in pages, as the edge does, and notes what it was asked.
type listing struct {
	*httptest.Server
	runs  []string // JSON
	asked []url.Values
}

func newListing(t *testing.T, runs ...string) *listing {
	l := &listing{runs: runs}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		l.asked = append(l.asked, q)
		if r.Method != http.MethodGet || r.URL.Path != "/v1/agent/runs" {
			clitest.Problem(w, http.StatusNotFound, "NOT-FOUND", "there is nothing here", 0)
			return
		}
		var from, limit int
		fmt.Sscan(q.Get("cursor"), &from)
		fmt.Sscan(q.Get("limit"), &limit)
		to, next := min(from+limit, len(l.runs)), "null"
		if to < len(l.runs) {
			next = fmt.Sprintf("%q", fmt.Sprint(to))
		}
		fmt.Fprintf(w, `{"runs":[%s],"next_cursor":%s}`, strings.Join(l.runs[from:to], ","), next)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listing) list(t *testing.T, cmd ListCmd) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Out, cmd.Err, cmd.Server = &out, &errs, l.URL
	err = cmd.Run(t.Context())
	return out.String(), errs.String(), err
}

const (
	doneRun  = `{"run_id":"run_done","state":"done","reason":null,"last_seq":1204,"started_at":"2026-02-28T23:59:01.500Z","updated_at":"2026-03-01T00:03:05.900Z","ended_at":"2026-03-01T00:03:05.900Z","usage":{"input_tokens":10,"output_tokens":25}}`
	liveRun  = `{"run_id":"run_live","state":"running","reason":null,"last_seq":3,"started_at":"2026-02-28T10:00:00.000Z","updated_at":"2026-02-28T10:00:59.000Z","ended_at":null,"usage":{}}`
	askRun   = `{"run_id":"run_ask","state":"running","reason":null,"last_seq":9,"started_at":"2026-02-27T11:00:00.000Z","updated_at":"2026-02-27T11:00:09.000Z","ended_at":null,"waits_for":"answer","asked_at":"2026-02-27T11:00:08.000Z","usage":{}}`
	freshRun = `{"run_id":"run_new","state":"","reason":null,"last_seq":1,"started_at":"2026-02-27T10:00:00.000Z","updated_at":"2026-02-27T10:00:00.000Z","ended_at":null,"usage":{"prompt_tokens":7,"completion_tokens":1}}`
	evilRun  = `{"run_id":"run_evil","state":"error","reason":"\u001b[2Jred \u202Eexe\nnext line and so on and so on and so on and so on and so on","last_seq":9,"started_at":"2026-02-26T10:00:00.000Z","updated_at":"2026-02-26T10:00:10.000Z","ended_at":"2026-02-26T10:00:10.000Z","usage":{"cached":1}}`
)

func TestRunsTable(t *testing.T) {
	l := newListing(t, doneRun, liveRun, askRun, freshRun, evilRun)
	stdout, stderr, err := l.list(t, ListCmd{Limit: 20})
	want := []string{
		"RUN       STATE    STARTED              TOOK  EVENTS  TOKENS  TITLE  REASON",
		"run_done  done     2026-02-28 23:59:01  4m4s  1204    10/25   ",
		"run_live  running  2026-02-28 10:00:00  59s+  3       -       ",
		"run_ask   waiting  2026-02-27 11:00:00  9s+   9       -       ",
		"run_new   none     2026-02-27 10:00:00  0s+   1       7/1     ",
		"run_evil  error    2026-02-26 10:00:00  10s   9       -              ␛[2Jred",
	}
	got := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if err != nil || stderr != "" || len(got) != len(want) {
		t.Fatalf("%v %q\n%s", err, stderr, stdout)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], strings.TrimRight(want[i], " ")) {
			t.Errorf("line %d\n got %q\nwant %q", i, got[i], want[i])
		}
	}
	if strings.ContainsAny(stdout, "\x1b\u202e") || !strings.HasSuffix(got[5], "…") {
		t.Errorf("%q", got[5])
	}
	for want, c := range map[string]ListCmd{"no runs yet": {}, "no such runs": {RunFilter: RunFilter{Waits: true}},
		"": {JSON: true}} {
		stdout, stderr, err := newListing(t).list(t, c)
		if err != nil || stdout != "" || !strings.Contains(stderr, want) || want == "" && stderr != "" {
			t.Errorf("none: %v %q %q, want %q", err, stdout, stderr, want)
		}
	}
}

func TestRunsInPages(t *testing.T) {
	var all []string
	for i := range 450 {
		all = append(all, strings.Replace(doneRun, "run_done", fmt.Sprintf("run_%03d", i), 1))
	}
	for limit, want := range map[int][]string{0: {"200", "200", "200"}, 20: {"20"}, 200: {"200"}, 250: {"200", "50"},
		450: {"200", "200", "50"}} {
		l := newListing(t, all...)
		stdout, stderr, err := l.list(t, ListCmd{Limit: limit, JSON: true})
		n := limit
		if limit == 0 {
			n = 450
		}
		lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
		if err != nil || len(lines) != n || stderr != "" {
			t.Fatalf("limit %d: %d lines, %v, %q", limit, len(lines), err, stderr)
		}
		for i, line := range lines {
			var r struct {
				RunID string `json:"run_id"`
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.RunID != fmt.Sprintf("run_%03d", i) {
				t.Fatalf("line %d: %v %s", i, err, line)
			}
		}
		var limits []string
		for _, q := range l.asked {
			limits = append(limits, q.Get("limit"))
		}
		if !slices.Equal(limits, want) {
			t.Errorf("limit %d asks for %q, want %q", limit, limits, want)
		}
	}
	if _, stderr, err := newListing(t, all...).list(t, ListCmd{Limit: 5}); err != nil ||
		!strings.Contains(stderr, "--limit 0") {
		t.Errorf("%v %q", err, stderr)
	}
}

func TestRunsAsksForWhatIsWanted(t *testing.T) {
	l := newListing(t, doneRun)
	cmd := ListCmd{RunFilter: RunFilter{State: []schema.RunState{"running", "paused"}, Since: "2026-02-01",
		Until: "2026-03-01T01:00:00+01:00", Search: "a b", Tag: "t"}, Sort: "events", Asc: true, Limit: 7}
	if _, _, err := l.list(t, cmd); err != nil {
		t.Fatal(err)
	}
	q := l.asked[0]
	if q.Get("state") != "running,paused" || q.Get("since") != "2026-02-01T00:00:00Z" ||
		q.Get("until") != "2026-03-01T00:00:00Z" || q.Get("limit") != "7" || q.Has("cursor") || q.Get("q") != "a b" ||
		q.Get("tag") != "t" || q.Get("order") != "events" || q.Get("direction") != "asc" {
		t.Errorf("%v", q)
	}
	before := time.Now()
	if _, _, err := l.list(t, ListCmd{RunFilter: RunFilter{Since: "90m"}, Limit: 1}); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, l.asked[1].Get("since"))
	if ago := before.Sub(at); err != nil || ago > 90*time.Minute || ago < 89*time.Minute {
		t.Errorf("%v %v", at, err)
	}
	for _, bad := range []ListCmd{{Limit: -1}, {RunFilter: RunFilter{Since: "yesterday"}},
		{RunFilter: RunFilter{Until: "-5m"}}, {RunFilter: RunFilter{Since: "2026-02-30"}}} {
		if stdout, _, err := l.list(t, bad); err == nil || stdout != "" {
			t.Errorf("%+v: %v %q", bad, err, stdout)
		}
	}
	if _, _, err := l.list(t, ListCmd{Limit: 1, ServerFlags: cli.ServerFlags{TokenFile: "/nowhere/at/all"}}); err == nil {
		t.Error("a token file that is not there is passed over")
	}
}
