package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// TestSessionsOfRecordings publishes every recording and reads it as a session, from the start and behind a frame in
// its middle: on the wire are the frames that the dialect makes of the run's replay, which its own TestRecordings
// holds to what is expected of the recordings.
func TestSessionsOfRecordings(t *testing.T) {
	beside(t)
	k := &keeping{t: t, edge: newProc(t, "dev", "--no-demo", "--session-increments", "--data", t.TempDir())}
	k.edge.start()
	frames := 0
	for _, name := range slices.Sorted(maps.Keys(recorded(t))) {
		k.publish(name)
		run := "rec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
		want := sessionFrames(t, run, download(t, k.edge.url("/v1/agent/runs/"+run+"/replay.jsonl")))
		frames += len(want)
		for _, after := range []int{0, len(want) / 2} {
			id := ""
			if after > 0 {
				id = want[after-1].id
			}
			got := readSession(t, k.edge.url("/api/v1/cloud/sessions/"+run+"/events/stream"), id, len(want)-after)
			for i, f := range got {
				if f != want[after+i].text {
					t.Errorf("%s behind %q: frame %d is\n%.300s\nwant\n%.300s", name, id, after+i, f, want[after+i].text)
					break
				}
			}
			if len(got) != len(want)-after {
				t.Errorf("%s behind %q: %d frames, want %d", name, id, len(got), len(want)-after)
			}
		}
	}
	if frames < 5000 {
		t.Errorf("only %d frames", frames)
	}
	t.Logf("%d frames", frames)
}

type sessionFrame struct{ id, text string }

// sessionFrames returns what the dialect makes of a replay.
func sessionFrames(t *testing.T, run string, replay []byte) (list []sessionFrame) {
	t.Helper()
	p := qoder.Dialect{Increments: true}.Projector(qoder.Request(run, ""))
	var out dialect.Frames
	for line := range schema.Lines(replay) {
		r, err := schema.ScanLine(line)
		if err == nil {
			err = p.Project(&out, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range out.List {
			list = append(list, sessionFrame{string(f.Token),
				"event: " + string(f.Event) + "\ndata: " + string(f.Data) + "\nid: " + string(f.Token) + "\n"})
		}
		out.Reset()
	}
	return list
}

// readSession reads so many frames behind an id.
func readSession(t *testing.T, url, after string, n int) (list []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s behind %q: %d %s", url, after, resp.StatusCode, b)
	}
	lines := bufio.NewReader(resp.Body)
	var frame bytes.Buffer
	for len(list) < n {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Errorf("%s: %v behind %d frames of %d", url, err, len(list), n)
			return list
		}
		switch {
		case len(line) > 1 && line[0] != ':' && !bytes.HasPrefix(line, []byte("retry:")):
			frame.Write(line)
		case len(line) == 1 && frame.Len() > 0:
			list = append(list, frame.String())
			frame.Reset()
		}
	}
	return list
}
