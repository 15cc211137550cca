package export

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"agentstream/cmd/agentstream/internal/archivetest"
	"agentstream/persister/export"
	"agentstream/schema"
)

// readTable reads all files of a folder in their order.
func readTable[T any](t *testing.T, dir string) (rows []T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	slices.Sort(files)
	for _, file := range files {
		some, err := parquet.ReadFile[T](file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		rows = append(rows, some...)
	}
	return rows
}

// cell is what a column holds, "" for null.
func cell(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// checkEvents holds rows to the lines of the tenants that they name, column by column.
func checkEvents(t *testing.T, f archivetest.Filled, rows []export.EventRow) {
	t.Helper()
	next := map[schema.RunKey]int{}
	for _, row := range rows {
		key := schema.RunKey{Tenant: row.Tenant, Run: row.RunID}
		lines, at := f.Runs[key], next[key]
		if at >= len(lines) {
			t.Fatalf("%s: row %d of %d", key, at+1, len(lines))
		}
		next[key]++
		e, err := schema.DecodeLine([]byte(lines[at]))
		if err != nil {
			t.Fatal(err)
		}
		if string(row.Payload) != string(e.Payload) {
			t.Fatalf("%s seq %d: payload\n%s\nwant\n%s", key, e.Seq, row.Payload, e.Payload)
		}
		ts, _ := time.Parse(time.RFC3339Nano, e.TS)
		got := fmt.Sprint(row.Seq, string(row.ID), string(row.Type), cell(row.ChildID), cell(row.TurnID),
			cell(row.Actor), cell(row.Cause), row.TS)
		want := fmt.Sprint(e.Seq, e.ID, e.Type, e.ChildID, e.TurnID, e.Actor, e.Cause, ts.UnixMicro())
		if got != want {
			t.Fatalf("%s: %s, want %s", key, got, want)
		}
		checkPayload(t, &row, &e)
	}
	for key, lines := range f.Runs {
		if key.Tenant == rows[0].Tenant && next[key] != len(lines) {
			t.Errorf("%s: %d rows of %d events", key, next[key], len(lines))
		}
	}
}

// checkPayload compares the columns that are taken out of a payload with what encoding/json reads there.
func checkPayload(t *testing.T, row *export.EventRow, e *schema.Event) {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return // 1e400 is no number to it
	}
	for name, got := range map[string]*string{"text": row.Text, "role": row.Role, "call_id": row.CallID,
		"tool": row.Tool, "state": row.State, "stop_reason": row.StopReason} {
		if want, ok := p[name].(string); ok != (got != nil) || ok && *got != want {
			t.Fatalf("%s seq %d: %s is %q, want %q of %s", e.RunID, e.Seq, name, cell(got), want, e.Payload)
		}
	}
	if want, ok := p["ok"].(bool); ok != (row.OK != nil) || ok && *row.OK != want {
		t.Fatalf("%s seq %d: ok is %v, want %v", e.RunID, e.Seq, row.OK, p["ok"])
	}
	if want, ok := p["duration_ms"].(float64); ok != (row.DurationMS != nil) || ok && *row.DurationMS != want {
		t.Fatalf("%s seq %d: duration_ms is %v, want %v", e.RunID, e.Seq, row.DurationMS, p["duration_ms"])
	}
	if id, ok := p["message_id"].(string); ok && id != cell(row.MessageID) {
		t.Fatalf("%s seq %d: message_id is %q, want %q", e.RunID, e.Seq, cell(row.MessageID), id)
	}
	if usage, ok := p["usage"].(map[string]any); ok {
		if want, ok := usage["input_tokens"].(float64); ok && want < 1<<53 &&
			(row.InputTokens == nil || *row.InputTokens != int64(want)) {
			t.Fatalf("%s seq %d: input_tokens is %v, want %v", e.RunID, e.Seq, row.InputTokens, want)
		}
	}
}

// folds returns what the schema's own fold makes of each run.
func foldsOf(t *testing.T, f archivetest.Filled, tenant string) map[schema.RunKey]*schema.Fold {
	t.Helper()
	folds := map[schema.RunKey]*schema.Fold{}
	for _, key := range keysOf(f, tenant) {
		folds[key] = new(schema.Fold)
		for _, line := range f.Runs[key] {
			r, err := schema.ScanLine([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			folds[key].AddRecord(r)
		}
	}
	return folds
}

// checkMessages holds rows to what one fold over the whole run says.
func checkMessages(t *testing.T, f archivetest.Filled, rows []export.MessageRow) {
	t.Helper()
	got := map[schema.RunKey][]string{}
	for _, r := range rows {
		end := int64(0)
		if r.EndSeq != nil {
			end = *r.EndSeq
		}
		key := schema.RunKey{Tenant: r.Tenant, Run: r.RunID}
		got[key] = append(got[key], fmt.Sprintf("%d-%d %s %s %s %s %q %q %s", r.Seq, end, cell(r.MessageID),
			cell(r.ChildID), r.Role, cell(r.Model), r.Text, r.Reasoning, cell(r.Usage)))
	}
	some := 0
	for key, fold := range foldsOf(t, f, rows[0].Tenant) {
		var want []string
		for _, m := range fold.Messages {
			text, reasoning := "", ""
			for _, b := range m.Blocks {
				switch b.Kind {
				case "text":
					text += b.Text.String()
				case "reasoning":
					reasoning += b.Text.String()
				}
			}
			want = append(want, fmt.Sprintf("%d-%d %s %s %s %s %q %q %s", m.Start, m.End, m.ID, m.Child, m.Role,
				m.Model, text, reasoning, m.Usage))
			some++
		}
		sameSet(t, key, got[key], want)
	}
	if some < 10 {
		t.Fatalf("only %d messages", some)
	}
}

func checkCalls(t *testing.T, f archivetest.Filled, rows []export.ToolCallRow) {
	t.Helper()
	got := map[schema.RunKey][]string{}
	for _, r := range rows {
		end := int64(0)
		if r.EndSeq != nil {
			end = *r.EndSeq
		}
		if (r.DurationMS == nil) != (end == 0) {
			t.Errorf("call %s from %d to %d: duration %v", r.CallID, r.Seq, end, r.DurationMS)
		}
		key := schema.RunKey{Tenant: r.Tenant, Run: r.RunID}
		got[key] = append(got[key], fmt.Sprintf("%d-%d %s %s %s %s %q %q %q", r.Seq, end, r.CallID, cell(r.ChildID),
			cell(r.Tool), r.Outcome, cell(r.Input), cell(r.Output), cell(r.Error)))
	}
	some := 0
	for key, fold := range foldsOf(t, f, rows[0].Tenant) {
		var want []string
		for _, c := range fold.Calls {
			outcome := map[bool]string{true: "ok", false: "error"}[c.OK]
			if !c.Done {
				outcome = "open"
			}
			want = append(want, fmt.Sprintf("%d-%d %s %s %s %s %q %q %q", c.Start, c.End, c.ID, c.Child, c.Tool,
				outcome, c.Input, c.Output, c.Error))
			some++
		}
		sameSet(t, key, got[key], want)
	}
	if some < 10 {
		t.Fatalf("only %d calls", some)
	}
}

func sameSet(t *testing.T, key schema.RunKey, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("%s: %d of %d, from the %dth on:\n%.600s\nwant\n%.600s", key, len(got), len(want), i+1,
					strings.Join(got[min(i, len(got)):], "\n"), strings.Join(want[min(i, len(want)):], "\n"))
			}
		}
	}
}

// Every table of Parquet, read back, is what the runs' lines say.
func TestExportParquet(t *testing.T) {
	for name, f := range archivetest.FillStores(t) {
		t.Run(name, func(t *testing.T) {
			export1 := func(args ...string) string {
				dir := filepath.Join(t.TempDir(), "out")
				if _, _, err := exportOf(t, f, nil, append([]string{"--tenant", "acme", "-o", dir, "--format",
					"parquet"}, args...)...); err != nil {
					t.Fatal(err)
				}
				return dir
			}
			dir := export1("--rows-per-file", "700")
			rows := readTable[export.EventRow](t, dir)
			checkEvents(t, f, rows)
			sorted := slices.IsSortedFunc(rows, func(a, b export.EventRow) int {
				return strings.Compare(fmt.Sprintf("%s %s %016d", a.Tenant, a.RunID, a.Seq),
					fmt.Sprintf("%s %s %016d", b.Tenant, b.RunID, b.Seq))
			})
			files, _ := filepath.Glob(filepath.Join(dir, "*.parquet"))
			if !sorted || len(files) != (len(rows)+699)/700 {
				t.Errorf("sorted: %v; %d files of %d rows", sorted, len(files), len(rows))
			}
			checkMessages(t, f, readTable[export.MessageRow](t, export1("--table", "messages")))
			checkCalls(t, f, readTable[export.ToolCallRow](t, export1("--table", "tool_calls")))

			runs := readTable[export.RunRow](t, export1("--table", "runs"))
			listed, err := f.Store.(export.Source).Runs(t.Context(), "acme", schema.RunsQuery{Limit: 1000})
			if err != nil || len(runs) != len(listed) || len(runs) != len(keysOf(f, "acme")) {
				t.Fatalf("%d runs of %d, %v", len(runs), len(listed), err)
			}
			for _, info := range listed {
				i := slices.IndexFunc(runs, func(r export.RunRow) bool { return r.RunID == info.ID })
				if i < 0 || cell(runs[i].State) != string(info.State) || runs[i].LastSeq != int64(info.Last) ||
					runs[i].StartedAt != info.Started.UnixMicro() || (runs[i].EndedAt != nil) != info.State.Final() {
					t.Errorf("run %+v is not in %+v", info, runs)
				}
			}
			everywhere := filepath.Join(t.TempDir(), "all.parquet")
			if _, _, err := exportOf(t, f, nil, "--all-tenants", "-o", everywhere, "--table", "runs"); err != nil {
				t.Fatal(err)
			}
			if all, err := parquet.ReadFile[export.RunRow](everywhere); err != nil || len(all) != len(f.Runs) {
				t.Errorf("all tenants: %d runs of %d, %v", len(all), len(f.Runs), err)
			}
		})
	}
}
