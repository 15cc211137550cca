package timeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// replay runs the command with --json, as fast as it goes.
func replay(t *testing.T, cmd ReplayCmd) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.JSON, cmd.Out, cmd.Err = true, &out, &errs
	if cmd.Speed == 0 {
		cmd.Speed = 1
	}
	err = cmd.Run(t.Context())
	return out.String(), errs.String(), err
}

func TestReplayPlaysRunsAndFiles(t *testing.T) {
	s := clitest.NewStandIn(t)
	lines := fill(s, "r1", "children")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, clitest.Join(lines))
	z.Close()
	for _, c := range []struct {
		name string
		cmd  ReplayCmd
		want []string
	}{
		{"run", ReplayCmd{Source: "r1", ServerFlags: cli.ServerFlags{Server: s.URL}}, lines},
		{"part of a run", ReplayCmd{Source: "r1", From: 3, To: 7, ServerFlags: cli.ServerFlags{Server: s.URL}}, lines[3:7]},
		{"file", ReplayCmd{Source: clitest.WriteFile(t, "run.jsonl", clitest.Join(lines))}, lines},
		{"part of a file", ReplayCmd{Source: clitest.WriteFile(t, "run.jsonl", clitest.Join(lines)), From: 2, To: 4},
			lines[2:4]},
		{"compressed file", ReplayCmd{Source: clitest.WriteFile(t, "run.jsonl.gz", zipped.String())}, lines},
		{"standard input, blank lines", ReplayCmd{Source: "-",
			Streams: cli.Streams{In: strings.NewReader(strings.Join(lines, "\n\n"))}}, lines},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, err := replay(t, c.cmd)
			if err != nil || stderr != "" || stdout != clitest.Join(c.want) {
				t.Fatalf("%v\n%s\ngot\n%swant\n%s", err, stderr, stdout, clitest.Join(c.want))
			}
		})
	}
}

func TestReplaySaysWhatIsWrong(t *testing.T) {
	s := clitest.NewStandIn(t)
	lines := fill(s, "r1", "plain")
	holed := clitest.WriteFile(t, "holed.jsonl", clitest.Join(slices.Concat(lines[:2], lines[3:])))
	if stdout, stderr, err := replay(t, ReplayCmd{Source: holed}); !errors.Is(err, errGap) ||
		!strings.Contains(stderr, "GAP: seq 3 to 3") ||
		stdout != clitest.Join(slices.Concat(lines[:2], lines[3:])) {
		t.Errorf("hole: %v, %q", err, stderr)
	}
	for _, c := range []struct {
		cmd  ReplayCmd
		want string
	}{
		{ReplayCmd{Source: "r1", From: -1}, "--from"}, {ReplayCmd{Source: "r1", To: schema.MaxSeq + 1}, "--to"},
		{ReplayCmd{Source: "r1", From: 5, To: 4}, "--to 4"}, {ReplayCmd{Source: "r1", Speed: -1}, "--speed"},
		{ReplayCmd{Source: "r1", MaxIdle: -1}, "--max-idle"},
		{ReplayCmd{Source: "no/such.file"}, "RUN is no id, and no file"},
		{ReplayCmd{Source: clitest.WriteFile(t, "bad.jsonl", lines[0]+"\n{nope\n")}, "bad.jsonl:2"},
		{ReplayCmd{Source: clitest.WriteFile(t, "new.jsonl", clitest.Text("a")+"\n")}, "new.jsonl:1"},
		{ReplayCmd{Source: clitest.WriteFile(t, "cut.gz", "\x1f\x8b\x08")}, "cut.gz"},
		{ReplayCmd{Source: "nobody", ServerFlags: cli.ServerFlags{Server: s.URL}}, "NOT-FOUND"},
	} {
		if _, _, err := replay(t, c.cmd); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cmd, err)
		}
	}
}

// Original timing, faster, with pauses shortened in the run's own time.
func TestReplayKeepsTheTiming(t *testing.T) {
	var file strings.Builder
	for i, ms := range []int{0, 400, 1200, 1100, 61_100, 62_000} {
		at := time.UnixMilli(1_700_000_000_000 + int64(ms)).UTC().Format(schema.TimeLayout)
		fmt.Fprintf(&file, `{"id":"evt_%d","ts":%q,"type":"text.delta","run_id":"r1","child_id":null,"seq":%d,"payload":{"text":"x"}}`+"\n", i+1, at, i+1)
	}
	ms := time.Millisecond
	for _, c := range []struct {
		speed float64
		want  []time.Duration
	}{
		{1, []time.Duration{0, 400 * ms, 1200 * ms, 1200 * ms, 3200 * ms, 4100 * ms}},
		{4, []time.Duration{0, 100 * ms, 300 * ms, 300 * ms, 800 * ms, 1025 * ms}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &timedWriter{start: time.Now()}
			cmd := ReplayCmd{Source: "-", Speed: c.speed, MaxIdle: 2 * time.Second, JSON: true,
				Streams: cli.Streams{In: strings.NewReader(file.String()), Out: w, Err: io.Discard}}
			if err := cmd.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(w.at, c.want) {
				t.Errorf("speed %v: shown at %v, want %v", c.speed, w.at, c.want)
			}
		})
	}
}

// timedWriter notes when each line came.
type timedWriter struct {
	start time.Time
	at    []time.Duration
}

func (w *timedWriter) Write(b []byte) (int, error) {
	for range bytes.Count(b, []byte{'\n'}) {
		w.at = append(w.at, time.Since(w.start))
	}
	return len(b), nil
}

func TestReplayStopsWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := `{"id":"e1","ts":"2026-01-01T00:00:00Z","type":"progress","run_id":"r1","child_id":null,"seq":1,"payload":{}}` + "\n" +
			`{"id":"e2","ts":"2026-01-01T00:01:00Z","type":"progress","run_id":"r1","child_id":null,"seq":2,"payload":{}}` + "\n"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var out bytes.Buffer
		cmd := ReplayCmd{Source: "-", Speed: 1, MaxIdle: time.Hour, JSON: true,
			Streams: cli.Streams{In: strings.NewReader(lines), Out: &out, Err: io.Discard}}
		if err := cmd.Run(ctx); err != nil || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%v, %q", err, out.String())
		}
	})
}

// tail asks for what its flags say; a program gets what is stored, a person's terminal the folded view.
func TestTailAsksForItsView(t *testing.T) {
	s := clitest.NewStandIn(t)
	fill(s, "r1", "plain")
	var query string
	s.Before = func(_ http.ResponseWriter, r *http.Request, n int) bool {
		if n == 0 {
			query = r.URL.RawQuery
		}
		return false
	}
	for _, c := range []struct {
		cmd  TailCmd
		json bool
		want string
	}{
		{TailCmd{}, true, "detail=full"},
		{TailCmd{Detail: "folded"}, true, "bundle=true"},
		{TailCmd{}, false, "bundle=true"},
		{TailCmd{Detail: "full"}, false, "detail=full"},
		{TailCmd{Child: []string{"c1", "-"}, Nested: true, Types: []string{"tool.*"}, Snapshot: true}, false,
			"bundle=true&child=c1%2C-&nested=true&snapshot=true&types=tool.%2A"},
	} {
		s2 := clitest.NewStandIn(t)
		s2.Before = s.Before
		fill(s2, "r1", "plain")
		c.cmd.ServerFlags, c.cmd.RunID, c.cmd.JSON = cli.ServerFlags{Server: s2.URL}, "r1", c.json
		c.cmd.Streams, c.cmd.Screen = cli.Streams{Out: io.Discard, Err: io.Discard}, &terminal.Screen{}
		if err := c.cmd.Run(t.Context()); err != nil || query != c.want {
			t.Errorf("%+v: %v, query %q, want %q", c.cmd, err, query, c.want)
		}
	}
	for _, cmd := range []TailCmd{{RunID: "r1", Snapshot: true, From: 1}, {RunID: "r1", Child: []string{"*"}}} {
		if _, _, err := tail(t, s, cmd); err == nil {
			t.Errorf("%+v: no error", cmd)
		}
	}
}

// Joining late: how the run stands, what is being said and done, and then what follows.
func TestTailShowsASnapshot(t *testing.T) {
	s := clitest.NewStandIn(t)
	lines := fill(s, "r1", "tool")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, `"tool.start"`) })
	var f schema.Fold
	for _, l := range lines[:at+1] {
		e, err := schema.DecodeLine([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		f.Add(&e)
	}
	e := schema.Event{ID: f.LastID(), TS: f.LastTS(), Type: "run.snapshot", RunID: "r1", Seq: f.Last, FirstSeq: 1,
		Payload: f.AppendSnapshot(nil)}
	s.Stream = func(w http.ResponseWriter, r *http.Request, _ []string, _ int) bool {
		if r.URL.Query().Get("snapshot") != "true" {
			return false
		}
		fmt.Fprintf(w, "event: run.snapshot\ndata: %s\nid: %d\n\n", e.AppendLine(nil), e.Seq)
		io.WriteString(w, clitest.SSEBody(lines[at+1:], "\n"))
		return true
	}
	var out, errs bytes.Buffer
	cmd := TailCmd{ServerFlags: cli.ServerFlags{Server: s.URL}, RunID: "r1", Snapshot: true,
		Streams: cli.Streams{Out: &out, Err: &errs}, Screen: &terminal.Screen{}}
	if err := cmd.Run(t.Context()); err != nil || errs.Len() > 0 {
		t.Fatalf("%v, %s", err, errs.String())
	}
	for _, want := range []string{"Σ [running] ", "1 message", "1 tool call", "read_file(path=", "is running",
		"✓ read_file", "[done]"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
