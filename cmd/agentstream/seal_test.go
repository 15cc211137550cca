package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/testkit"
	"agentstream/schema"
	"agentstream/schema/redact/redacttest"
)

// planted are texts as people write them. A core is what is looked for.
var planted = []redacttest.Secret{
	{Kind: "first", Text: "the PLANTEDALPHA is mine", Core: "PLANTEDALPHA"},
	{Kind: "second", Text: "über PLANTEDBETA and so on", Core: "PLANTEDBETA"},
}

// readsOf are requests that show what a run has, in every protocol that reads one over HTTP.
var readsOf = []string{
	"/v1/agent/runs", "/v1/agent/runs/events-0", "/v1/agent/runs/events-0/events", "/v1/agent/runs/events-0/stream",
	"/v1/agent/runs/events-0/replay.jsonl", "/v1/agent/runs/events-0/snapshot", "/v1/agent/runs/run-0/snapshot",
	"/v1/agent/events/stream?types=custom.*", "/v1/agent/runs/large/events", "/v1/agent/runs/agui-0/events",
	"/api/v1/cloud/sessions", "/threads/langgraph-0/state", "/threads/langgraph-0/history", "/v1/ai-sdk/chat/aisdk-0/stream",
	"/v1/agent/costs",
}

// TestEncryptedAtRest: of texts that come in by every way nothing is in any file of dev, compressed or not, while readers get
// them as they were sent. Once the key is deleted, no protocol and no command shows them, also after a new start; what a
// client is told is 410 KEY-GONE.
func TestEncryptedAtRest(t *testing.T) {
	dir := t.TempDir()
	data, folder := filepath.Join(dir, "data"), filepath.Join(dir, "keys")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	service := "file:" + folder
	_, call := program(t)
	if _, said, status := call(nil, "keys", "create", "--tenant", "default", "--key-service", service,
		"--nats", "nats://127.0.0.1:1"); status != 0 {
		t.Fatalf("keys create: %s", said)
	}
	t.Run("serve", func(t *testing.T) {
		at, bus := testkit.FreeAddr(t), testkit.FreeAddr(t)
		url := "http://" + at
		dev(t, "curl", "--no-demo", "--data", data, "--listen", at, "--nats-listen", bus, "--nats-ingest", "--archive-settle", "1s",
			"--otlp-settle", "100ms", "--encrypt", "*", "--key-service", service, "--key-life", "1s", "--linger", "0s")
		sendSecrets(t, url, "nats://"+bus, planted)
		whole(t, url)
		checkReads(t, url)
		clitest.WaitFor(t, func() bool { // there are objects
			found, err := filepath.Glob(filepath.Join(data, "*", "default", "*", "*"))
			return err == nil && len(found) > 0
		})
		out, said, status := call(nil, "keys", "delete", "--tenant", "default", "--yes", "--by", "ops", "--key-service", service,
			"--nats", "nats://"+bus)
		if status != 0 || strings.Contains(said, "not in the audit feed") {
			t.Fatalf("keys delete: %s%s", out, said)
		}
		clitest.WaitFor(t, func() bool {
			status, body := readBeginning(t, url+"/v1/agent/runs/events-0/events")
			return status == http.StatusGone && strings.Contains(body, "KEY-GONE")
		})
		checkGone(t, url, http.StatusGone)
	})
	if leaks := searchFiles(t, data, planted); len(leaks) > 0 {
		t.Errorf("found in files: %q", leaks)
	}
	t.Run("without the key service", func(t *testing.T) {
		at := testkit.FreeAddr(t)
		dev(t, "curl", "--no-demo", "--data", data, "--listen", at)
		checkGone(t, "http://"+at, 0)
		for _, args := range [][]string{{"export", "--data", data, "-o", "-"},
			{"export", "--data", data, "-o", "-", "--key-service", service}} {
			out, said, _ := call(nil, args...)
			if leaks := redacttest.Leak([]byte(out+said), planted); len(leaks) > 0 || out == "" && said == "" {
				t.Errorf("%s: %q", args, leaks)
			}
		}
	})
}

// whole posts a run that ends, so that it becomes an object.
func whole(t *testing.T, url string) {
	t.Helper()
	post(t, url, wayIn{"POST", "/v1/agent/runs/RUN/events", "application/x-ndjson",
		`{"type":"run.lifecycle","payload":{"state":"done","reason":"` + planted[0].Text + `"}}`}, "events-0")
	post(t, url, wayIn{"PUT", "/v1/agent/runs/RUN/blobs", "text/plain", planted[0].Text}, "events-0")
}

// checkReads checks that readers get what was sent.
func checkReads(t *testing.T, url string) {
	t.Helper()
	for _, path := range readsOf[2:6] {
		if status, body := readBeginning(t, url+path); status != http.StatusOK || !strings.Contains(body, planted[0].Core) {
			t.Errorf("%s: %d %.300s", path, status, body)
		}
	}
	client, err := agentstream.New(agentstream.Config{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	page, err := client.Run("large").Events(t.Context(), agentstream.PageQuery{})
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("%v, %d events", err, len(page.Events))
	}
	ref := schema.Field(page.Events[0].Payload, "blob_ref")
	_, content, err := client.Run("large").Blob(t.Context(), strings.Trim(string(ref), `"`))
	if err != nil || !bytes.Contains(content, []byte(planted[0].Core)) {
		t.Errorf("blob %s: %v, %d bytes", ref, err, len(content))
	}
}

// checkGone checks that no request shows a planted text, and that each ends in a refusal: of the status, if it is given.
func checkGone(t *testing.T, url string, want int) {
	t.Helper()
	for _, path := range readsOf {
		status, body := readBeginning(t, url+path)
		if leaks := redacttest.Leak([]byte(body), planted); len(leaks) > 0 || status >= 500 || want > 0 && status != want {
			t.Errorf("%s: %d, %q: %.300s", path, status, leaks, body)
		}
	}
	for name, way := range waysIn {
		if want == 0 {
			break
		}
		req, err := http.NewRequestWithContext(t.Context(), way.method, url+strings.ReplaceAll(way.path, "RUN", "late"),
			strings.NewReader(strings.ReplaceAll(strings.ReplaceAll(way.body, "TRACE", fmt.Sprintf("%032x", 99)), "RUN", "late")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", way.typ)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("to write by %s: %d", name, resp.StatusCode)
		}
	}
}

// readBeginning returns the beginning of an answer: some are streams.
func readBeginning(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<20)) // a stream goes on until the time is over
	return resp.StatusCode, string(text)
}

// searchFiles returns which texts are in which file of a folder, compressed with zstd or not.
func searchFiles(t *testing.T, folder string, texts []redacttest.Secret) (leaks []string) {
	t.Helper()
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, kind := range redacttest.Leak(b, texts) {
			leaks = append(leaks, kind+" in "+path)
		}
		for rest := b; ; { // frames within it, each as far as it can be read
			i := bytes.Index(rest, magic)
			if i < 0 {
				break
			}
			if decoder.Reset(bytes.NewReader(rest[i:])) == nil {
				text, _ := io.ReadAll(io.LimitReader(decoder, 16<<20))
				for _, kind := range redacttest.Leak(text, texts) {
					leaks = append(leaks, kind+" compressed in "+path)
				}
			}
			rest = rest[i+len(magic):]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return leaks
}
