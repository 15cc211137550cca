package timeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// fill stores a scenario in a run and returns its lines.
func fill(s *clitest.StandIn, run, scenario string) []string {
	events := slices.Clone(schematest.ByName(scenario).Events)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Store(run, events)
	return slices.Clone(s.Runs[run])
}

// tail runs the command with --json.
func tail(t *testing.T, s *clitest.StandIn, cmd TailCmd) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Server, cmd.JSON, cmd.Out, cmd.Err = s.URL, true, &out, &errs
	err = cmd.Run(t.Context())
	return out.String(), errs.String(), err
}

func TestTailPrintsAllOfEveryScenario(t *testing.T) {
	for _, sc := range schematest.All() {
		t.Run(sc.Name, func(t *testing.T) {
			s := clitest.NewStandIn(t)
			lines := fill(s, "r1", sc.Name)
			stdout, stderr, err := tail(t, s, TailCmd{RunID: "r1"})
			if err != nil || stderr != "" {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if stdout != clitest.Join(lines) {
				t.Error("printed lines are not the stored ones")
			}
		})
	}
}

func TestTailFromEveryCursor(t *testing.T) {
	s := clitest.NewStandIn(t)
	lines := fill(s, "r1", "tool")
	for from := range len(lines) + 1 {
		stdout, stderr, err := tail(t, s, TailCmd{RunID: "r1", From: schema.Seq(from)})
		if err != nil || stderr != "" || stdout != clitest.Join(lines[from:]) {
			t.Fatalf("from %d: %v\n%s\n%s", from, err, stderr, stdout)
		}
	}
	if _, _, err := tail(t, s, TailCmd{RunID: "r1", From: schema.Seq(len(lines) + 1)}); err == nil ||
		!strings.Contains(err.Error(), "CURSOR-AHEAD") {
		t.Errorf("from the future: %v", err)
	}
}

// The connection is cut behind every single byte of the stream, in order and in disorder; what is
// printed must be the whole, once.
func TestTailSurvivesACutAtEveryByte(t *testing.T) {
	for eol, broken := range map[string]bool{"\n": true, "\r\n": false} {
		t.Run(fmt.Sprintf("%q broken=%v", eol, broken), func(t *testing.T) {
			t.Parallel()
			s := clitest.NewStandIn(t)
			lines := fill(s, "r1", "cancel-between")[:4]
			ended := fill(s, "r2", "cancel-between")
			lines = append(lines, strings.Replace(ended[len(ended)-1], fmt.Sprintf(`"seq":%d,`, len(ended)), `"seq":5,`, 1))
			s.Mu.Lock()
			s.Runs["r1"] = lines
			s.Mu.Unlock()
			const hello = "retry: 1\n\n"
			whole := hello + clitest.SSEBody(lines, eol)
			var cut, conns int
			s.Stream = func(w http.ResponseWriter, r *http.Request, rest []string, _ int) bool {
				conns++
				body := hello + clitest.SSEBody(rest, eol)
				if conns > 1 {
					io.WriteString(w, body)
					return true
				}
				io.WriteString(w, body[:cut])
				w.(http.Flusher).Flush()
				if broken {
					panic(http.ErrAbortHandler)
				}
				return true
			}
			for cut = range len(whole) + 1 {
				conns = 0
				stdout, stderr, err := tail(t, s, TailCmd{RunID: "r1"})
				if err != nil || stdout != clitest.Join(lines) {
					t.Fatalf("cut at %d of %d: %v\n%s\ngot\n%s", cut, len(whole), err, stderr, stdout)
				}
				if strings.Contains(stderr, "GAP") || strings.Contains(stderr, "again behind") {
					t.Fatalf("cut at %d: %s", cut, stderr)
				}
			}
		})
	}
}

// A final lifecycle in the middle of a run that was followed up is not its end.
func TestTailGoesOnAfterAFollowUp(t *testing.T) {
	s := clitest.NewStandIn(t)
	lines := fill(s, "r1", "follow-up")
	finals := 0
	for i, line := range lines {
		r, _ := schema.ScanLine([]byte(line))
		if string(r.Type) == schema.TypeRunLifecycle {
			if l, _ := schema.ParseLifecycle(r.Payload()); l.State.Final() && i < len(lines)-1 {
				finals++
				s.Stream = func(w http.ResponseWriter, _ *http.Request, rest []string, _ int) bool {
					if len(rest) > len(lines)-i-1 { // the node goes away just after it
						io.WriteString(w, clitest.SSEBody(rest[:i+1-(len(lines)-len(rest))], "\n"))
						return true
					}
					return false
				}
			}
		}
	}
	if finals == 0 {
		t.Fatal("the scenario has no final lifecycle before its end")
	}
	stdout, stderr, err := tail(t, s, TailCmd{RunID: "r1"})
	if err != nil || stdout != clitest.Join(lines) {
		t.Fatalf("%v\n%s\n%s", err, stderr, stdout)
	}
}

func TestTailSaysWhenEventsAreMissing(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(lines []string) []string
		want  string
		shown func(lines []string) []string
	}{
		{"gap", func(l []string) []string { return slices.Concat(l[:2], l[4:]) }, "GAP: seq 3 to 4 did not come", nil},
		{"gap at the beginning", func(l []string) []string { return l[1:] }, "GAP: seq 1 to 1 did not come", nil},
		{"twice", func(l []string) []string { return slices.Concat(l[:3], l[1:]) }, "seq 2 came again behind 3",
			func(l []string) []string { return l }},
		{"disorder", func(l []string) []string { return slices.Concat(l[:2], l[3:4], l[2:3], l[4:]) },
			"GAP: seq 3 to 3", func(l []string) []string { return slices.Concat(l[:2], l[3:]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := clitest.NewStandIn(t)
			lines := fill(s, "r1", "tool")
			served := c.serve(lines)
			s.Stream = func(w http.ResponseWriter, _ *http.Request, rest []string, _ int) bool {
				if len(rest) < len(lines) {
					return false
				}
				io.WriteString(w, clitest.SSEBody(served, "\n"))
				return true
			}
			stdout, stderr, err := tail(t, s, TailCmd{RunID: "r1"})
			if !errors.Is(err, errGap) || !strings.Contains(stderr, c.want) {
				t.Fatalf("error %v, stderr %q", err, stderr)
			}
			if c.shown != nil {
				served = c.shown(lines)
			}
			if stdout != clitest.Join(served) {
				t.Errorf("printed\n%s", stdout)
			}
		})
	}
}

// An event of a view that stands for several is no gap; one that overlaps is said.
func TestTailUnderstandsFirstSeq(t *testing.T) {
	s := clitest.NewStandIn(t)
	fill(s, "r1", "tool")
	event := func(first, seq int) string {
		f := ""
		if first > 0 {
			f = fmt.Sprintf(`,"first_seq":%d`, first)
		}
		return fmt.Sprintf(`{"id":"evt_%d","ts":"2026-01-01T00:00:00.000Z","type":"text.delta","run_id":"r1","child_id":null,"seq":%d%s,"payload":{"text":"x"}}`, seq, seq, f)
	}
	final := `{"id":"evt_7","ts":"2026-01-01T00:00:00.000Z","type":"run.lifecycle","run_id":"r1","child_id":null,"seq":7,"payload":{"state":"done"}}`
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{event(0, 1), event(2, 4), event(5, 6), final}, ""},
		{[]string{event(1, 2), event(2, 6), final}, "OVERLAP"},
		{[]string{event(1, 2), event(4, 6), final}, "GAP: seq 3 to 3"},
	} {
		s.Stream = func(w http.ResponseWriter, r *http.Request, _ []string, _ int) bool {
			if r.Header.Get("Last-Event-ID") == "" {
				io.WriteString(w, sseBodyLoose(c.lines))
			}
			return true
		}
		_, stderr, err := tail(t, s, TailCmd{RunID: "r1"})
		if (c.want == "") != (err == nil) || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %v, stderr %q", c.lines, err, stderr)
		}
	}
}

// sseBodyLoose writes lines that no log would hold.
func sseBodyLoose(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "data: %s\nid: %d\n\n", line, e.Seq)
	}
	return b.String()
}

func TestTailAnswersThatDecide(t *testing.T) {
	for _, c := range []struct {
		name    string
		first   func(w http.ResponseWriter)
		want    string // of the error; "": goes on
		retried bool
	}{
		{"not found", func(w http.ResponseWriter) { clitest.Problem(w, 404, "NOT-FOUND", "there is nothing here", 0) },
			"NOT-FOUND", false},
		{"expired", func(w http.ResponseWriter) { clitest.Problem(w, 410, schema.CodeCursorExpired, "no longer kept", 0) }, schema.CodeCursorExpired, false},
		{"unauthorized", func(w http.ResponseWriter) { clitest.Problem(w, 401, "UNAUTHORIZED", "no", 0) },
			"UNAUTHORIZED", false},
		{"busy", func(w http.ResponseWriter) { clitest.Problem(w, 503, "BUSY", "full", 0) }, "", true},
		{"too many", func(w http.ResponseWriter) { clitest.Problem(w, 429, "BUSY", "full", 0) }, "", true},
		{"bad gateway", func(w http.ResponseWriter) { w.WriteHeader(502) }, "", true},
		{"reset", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "", true},
		{"a web page", func(w http.ResponseWriter) { io.WriteString(w, "<html>") }, "is this an agentstream server?", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := clitest.NewStandIn(t)
			lines := fill(s, "r1", "plain")
			s.Before = func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n == 0 {
					c.first(w)
				}
				return n == 0
			}
			stdout, stderr, err := tail(t, s, TailCmd{RunID: "r1"})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || len(s.Log()) != 0 {
					t.Fatalf("error %v after %d more requests", err, len(s.Log()))
				}
				return
			}
			if err != nil || stdout != clitest.Join(lines) || !strings.Contains(stderr, "; again in ") {
				t.Errorf("%v, stderr %q", err, stderr)
			}
		})
	}
	t.Run("bad arguments", func(t *testing.T) {
		for _, cmd := range []TailCmd{{RunID: "a.b"}, {RunID: ""}, {RunID: "r1", From: -1},
			{RunID: "r1", From: schema.MaxSeq + 1}} {
			if _, _, err := tail(t, clitest.NewStandIn(t), cmd); err == nil {
				t.Errorf("%+v: no error", cmd)
			}
		}
	})
}

func TestTailStopsWhenAsked(t *testing.T) {
	s := clitest.NewStandIn(t)
	lines := fill(s, "r1", "plain")[:3]
	s.Mu.Lock()
	s.Runs["r1"] = lines
	s.Mu.Unlock()
	s.Stream = func(w http.ResponseWriter, r *http.Request, rest []string, _ int) bool {
		io.WriteString(w, clitest.SSEBody(rest, "\n"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs clitest.LockedBuffer
	cmd := TailCmd{ServerFlags: cli.ServerFlags{Server: s.URL}, RunID: "r1", JSON: true,
		Streams: cli.Streams{Out: &out, Err: &errs}}
	done := make(chan error, 1)
	go func() { done <- cmd.Run(ctx) }()
	clitest.WaitFor(t, func() bool { return out.String() == clitest.Join(lines) })
	cancel()
	if err := <-done; err != nil || !strings.Contains(errs.String(), "--from 3") {
		t.Errorf("%v, stderr %q", err, errs.String())
	}
}
