package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// What the command exports of every recording and of the hostile run is, byte for byte, what the server
// replays; and a Parquet reader that is not ours finds the same payloads in the table.
func TestExportIsTheReplay(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	all := recorded(t)
	data := t.TempDir()
	p := newProc(t, "dev", "--no-demo", "--data", data)
	p.start()
	replay := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		run := "rec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
		publishFile(t, p.url(""), run, filepath.Join(providertest.Dir(t), filepath.FromSlash(name)))
		replay[run] = nil
	}
	publishScenario(t, p, "hostile", schematest.ByName("hostile"))
	replay["hostile"] = nil
	for run := range replay {
		replay[run] = download(t, p.url("/v1/agent/runs/"+run+"/replay.jsonl"))
	}
	if !bytes.Contains(replay["hostile"], []byte(`\u0000`)) || !bytes.Contains(replay["hostile"], []byte(`1e400`)) {
		t.Fatal("the hostile run is not hostile")
	}
	if code := p.stop(); code != 0 { // it persists what it has taken before it ends
		t.Fatalf("the server ended with %d", code)
	}

	lines, table := filepath.Join(t.TempDir(), "lines"), filepath.Join(t.TempDir(), "table")
	runExport(t, "--data", data, "-o", lines)
	for run, want := range replay {
		got, err := os.ReadFile(filepath.Join(lines, "default", run+".jsonl"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, or others: %v", run, len(got), len(want), err)
		}
	}
	runExport(t, "--data", data, "-o", table, "--format", "parquet", "--rows-per-file", "5000")
	judgeTable(t, node, table, replay)
}

func publishScenario(t *testing.T, p *proc, run string, s schematest.Scenario) {
	t.Helper()
	var body []byte
	for _, e := range s.Events {
		line, err := json.Marshal(map[string]any{"type": e.Type, "child_id": nullable(e.ChildID)})
		if err != nil {
			t.Fatal(err)
		}
		// The payload goes as it is: to decode it would be to change it.
		body = append(append(append(body, bytes.TrimSuffix(line, []byte("}"))...), `,"payload":`...), e.Payload...)
		body = append(body, "}\n"...)
	}
	resp, err := http.Post(p.url("/v1/agent/runs/"+run+"/events"), "application/x-ndjson", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		answer, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func download(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d: %.300s: %v", resp.StatusCode, body, err)
	}
	return body
}

func runExport(t *testing.T, args ...string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command(path, append([]string{"export"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// foreignRow is a row as the other library reads it. A null is nil.
type foreignRow struct {
	Tenant  string  `json:"tenant"`
	Run     string  `json:"run_id"`
	Seq     int     `json:"seq"`
	ID      string  `json:"id"`
	TS      string  `json:"ts"`
	Type    string  `json:"type"`
	Child   *string `json:"child_id"`
	Payload string  `json:"payload"`
	Text    *string `json:"text"`
	Tool    *string `json:"tool"`
	Stop    *string `json:"stop_reason"`
	In      *int64  `json:"input_tokens"`
}

// judgeTable reads the table by node and holds every row to its line.
func judgeTable(t *testing.T, node, dir string, replay map[string][]byte) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.parquet"))
	slices.Sort(files)
	if len(files) < 2 {
		t.Fatalf("the table is %v", files)
	}
	cmd := exec.CommandContext(t.Context(), node, append([]string{"parquet.mjs"}, files...)...)
	cmd.Dir = jsDir
	cmd.WaitDelay = time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(errs.String(), 4000))
	}
	rows := 0
	for line := range bytes.Lines(out) {
		var row foreignRow
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		want, rest, ok := bytes.Cut(replay[row.Run], []byte("\n"))
		if !ok {
			t.Fatalf("row %s seq %d is of no event", row.Run, row.Seq)
		}
		replay[row.Run] = rest
		rows++
		judgeRow(t, &row, want)
	}
	for run, rest := range replay {
		if len(rest) > 0 {
			t.Errorf("%s: the table lacks %d bytes of lines", run, len(rest))
		}
	}
	t.Logf("%d rows in %d files were read by hyparquet", rows, len(files))
}

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return strconv.Quote(*s)
}

func judgeRow(t *testing.T, row *foreignRow, line []byte) {
	t.Helper()
	e, err := schema.DecodeLine(line)
	if err != nil {
		t.Fatal(err)
	}
	at, err1 := time.Parse(time.RFC3339Nano, row.TS)
	said, err2 := time.Parse(time.RFC3339Nano, e.TS)
	if row.Payload != string(e.Payload) || row.Seq != int(e.Seq) || row.ID != e.ID || row.Type != e.Type ||
		row.Tenant != "default" ||
		err1 != nil || err2 != nil || !at.Equal(said.Truncate(time.Millisecond)) || (row.Child == nil) != (e.ChildID == "") {
		t.Fatalf("row %+v\nis not\n%s", row, line)
	}
	var p struct {
		Text  any `json:"text"`
		Tool  any `json:"tool"`
		Stop  any `json:"stop_reason"`
		Usage struct {
			In *int64 `json:"input_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(e.Payload, &p) != nil {
		return // what the hostile run holds, encoding/json does not always take
	}
	for name, pair := range map[string]struct {
		got  *string
		want any
	}{"text": {row.Text, p.Text}, "tool": {row.Tool, p.Tool}, "stop_reason": {row.Stop, p.Stop}} {
		want, isText := pair.want.(string)
		if isText != (pair.got != nil) || isText && *pair.got != want {
			t.Fatalf("%s seq %d: %s is %s, not as in\n%s", row.Run, row.Seq, name, show(pair.got), line)
		}
	}
	if p.Usage.In != nil && (row.In == nil || *row.In != *p.Usage.In) {
		t.Fatalf("%s seq %d: input_tokens is not as in\n%s", row.Run, row.Seq, line)
	}
}
