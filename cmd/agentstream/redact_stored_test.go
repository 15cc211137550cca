package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/protocols/agui"
	"agentstream/schema/redact/redacttest"
)

// TestStoredSecretsAreHidden: of secrets of every kind that were stored by every way before there were rules, whole and
// divided over deltas, nothing is in any file of the folder after redact --apply; a second time changes nothing.
func TestStoredSecretsAreHidden(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "rules.json")
	if err := os.WriteFile(file, []byte(redacttest.Rules), 0o600); err != nil {
		t.Fatal(err)
	}
	list := redacttest.Secrets(17)
	t.Run("serve", func(t *testing.T) {
		at, bus := testkit.FreeAddr(t), testkit.FreeAddr(t)
		dev(t, "curl", "--no-demo", "--data", data, "--listen", at, "--nats-listen", bus, "--nats-ingest",
			"--otlp-settle", "100ms", "--archive-settle", "1ms")
		sendSecrets(t, "http://"+at, "nats://"+bus, list)
	})
	if leaks := leaksIn(t, data, list); len(leaks) < len(list) {
		t.Fatalf("nothing is planted: %q", leaks)
	}
	_, call := program(t)
	for i := range 2 {
		out, said, status := call(nil, "redact", "--data", data, "--redact", file, "--apply", "--yes", "--json", "--by", "ann")
		var done struct {
			Runs, Changed, Messages, Blobs int
			Held, Failed                   []string
		}
		if status != 0 || json.Unmarshal([]byte(out), &done) != nil {
			t.Fatalf("%d: %s%s", status, out, said)
		}
		if (done.Changed > 0) != (i == 0) || (done.Messages > 0) != (i == 0) || (done.Blobs > 0) != (i == 0) {
			t.Errorf("time %d: %s", i+1, out)
		}
		if leaks := leaksIn(t, data, list); len(leaks) > 0 {
			t.Errorf("time %d, found in files: %q", i+1, leaks)
		}
	}
	out, said, status := call(nil, "redact", "--data", data, "--redact", file, "--dry-run", "--json")
	var report struct{ Runs, Changed int }
	if status != 0 || json.Unmarshal([]byte(out), &report) != nil || report.Changed != 0 || report.Runs < len(list) {
		t.Errorf("dry run: %d %s%s", status, out, said)
	}
}

// TestRedactKilled: a process that hides what is stored is killed at any moments, and run again: then the folder holds what it
// holds after a run that was not killed, and a server on it gives the rest after any event, in the native protocol and AG-UI.
func TestRedactKilled(t *testing.T) {
	dir := t.TempDir()
	data, whole, file := filepath.Join(dir, "data"), filepath.Join(dir, "whole"), filepath.Join(dir, "rules.json")
	if err := os.WriteFile(file, []byte(redacttest.Rules), 0o600); err != nil {
		t.Fatal(err)
	}
	list := redacttest.Secrets(23)
	t.Run("serve", func(t *testing.T) {
		at, bus := testkit.FreeAddr(t), testkit.FreeAddr(t)
		dev(t, "curl", "--no-demo", "--data", data, "--listen", at, "--nats-listen", bus, "--nats-ingest",
			"--otlp-settle", "100ms", "--archive-settle", "1ms")
		sendSecrets(t, "http://"+at, "nats://"+bus, list)
		told := `{"type":"message.start","payload":{"message_id":"m","role":"assistant"}}
{"type":"text.delta","payload":{"text":"the key ` + list[0].Text[:20] + `"}}
{"type":"text.delta","payload":{"text":"` + list[0].Text[20:] + ` is mine"}}
{"type":"message.end","payload":{"message_id":"m"}}
{"type":"run.lifecycle","payload":{"state":"done"}}`
		post(t, "http://"+at, wayIn{"POST", "/v1/agent/runs/RUN/events", "application/x-ndjson", told}, "told")
	})
	if err := os.CopyFS(whole, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	folder, call := program(t)
	apply := []string{"redact", "--redact", file, "--apply", "--yes", "--by", "ann", "--data"}
	kills := 0
	for wait := 30 * time.Millisecond; wait < 2*time.Second; wait += wait / 3 {
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "agentstream"), append(apply, data)...)
		cmd.Env = []string{asProgram + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + folder}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(wait, func() { _ = cmd.Process.Kill() })
		if cmd.Wait() == nil {
			break
		}
		kills++
	}
	if kills < 3 {
		t.Errorf("it was killed %d times", kills)
	}
	for _, of := range []string{data, whole} {
		if out, said, status := call(nil, append(apply, of)...); status != 0 {
			t.Fatalf("%d: %s%s", status, out, said)
		}
		if leaks := leaksIn(t, of, list); len(leaks) > 0 {
			t.Errorf("found in files of %s: %q", filepath.Base(of), leaks)
		}
	}
	if a, b := storedLines(t, data), storedLines(t, whole); a != b {
		t.Error("the folder holds other events than after a run that was not killed")
	}
	at := testkit.FreeAddr(t)
	dev(t, "curl", "--no-demo", "--data", data, "--listen", at)
	for _, path := range []string{"/v1/agent/runs/told/stream?detail=full", agui.Base + "/told"} {
		resumeEverywhere(t, "http://"+at+path)
	}
	if code, text := fetch(t, "http://"+at+"/v1/agent/runs/told/snapshot", ""); code != http.StatusOK ||
		!strings.Contains(text, "the key [redacted:keys] is mine") {
		t.Errorf("snapshot: %d %s", code, text)
	}
	_, before := fetch(t, "http://"+at+"/v1/agent/runs/cut-0/events?limit=1000", "")
	post(t, "http://"+at, wayIn{"POST", "/v1/agent/runs/RUN/events", "application/x-ndjson", `{"type":"progress","payload":{"done":1}}`}, "cut-0")
	_, after := fetch(t, "http://"+at+"/v1/agent/runs/cut-0/events?limit=1000", "")
	count := func(page string) int { return strings.Count(page, `"run_id":"cut-0"`) }
	if n := count(before); n == 0 || count(after) != n+1 || !strings.Contains(after, fmt.Sprintf(`"seq":%d,`, n+1)) {
		t.Errorf("a run that goes on: %s", after)
	}
}

// storedLines returns all events of a folder.
func storedLines(t *testing.T, data string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "archive.db")+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var text string
	err = db.QueryRowContext(t.Context(), `select group_concat(line, char(10)) from (select line from agent_run_events
		where koder_user_id not like '\_audit%' escape '\' order by koder_user_id, run_id, seq)`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fetch gets a whole answer, from a cursor on.
func fetch(t *testing.T, url, last string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s after %q: %v", url, last, err)
	}
	return resp.StatusCode, string(text)
}

// resumeEverywhere reads the stream of a run that has ended, and again after each of its frames.
func resumeEverywhere(t *testing.T, url string) {
	t.Helper()
	code, text := fetch(t, url, "")
	all := sseFrames(text)
	if code != http.StatusOK || len(all) < 4 || !strings.Contains(text, "[redacted:keys]") {
		t.Fatalf("%s: %d %s", url, code, text)
	}
	for i, frame := range all[:len(all)-1] {
		_, rest, ok := strings.Cut(frame, "id: ")
		if !ok {
			continue
		}
		id, _, _ := strings.Cut(rest, "\n")
		if _, text := fetch(t, url, id); !slices.Equal(sseFrames(text), all[i+1:]) {
			t.Errorf("%s after %s: %q, want %q", url, id, sseFrames(text), all[i+1:])
		}
	}
}

// sseFrames returns the frames of a stream that have data.
func sseFrames(text string) (all []string) {
	for frame := range strings.SplitSeq(text, "\n\n") {
		if strings.Contains(frame, "data: ") {
			all = append(all, strings.TrimLeft(frame, "\n"))
		}
	}
	return all
}
