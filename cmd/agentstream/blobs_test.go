package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/publish"
	retentioncmd "agentstream/cmd/agentstream/internal/retention"
	"agentstream/internal/natskit"
	"agentstream/persister/blob"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// put keeps a blob with a run, and returns its path.
func (h *keptHouse) put(run, body string) string {
	h.Helper()
	status, answer := h.do("PUT", "/"+run+"/blobs", body)
	var blob struct {
		Ref string `json:"blob_ref"`
	}
	if err := json.Unmarshal([]byte(answer), &blob); err != nil || status != 201 {
		h.Fatalf("%s: %d %s", run, status, answer)
	}
	return "/" + run + "/blobs/" + blob.Ref
}

// wantBlob asks for a blob; body "" with another status than 200.
func (h *keptHouse) wantBlob(path string, status int, body string) {
	h.Helper()
	got, text := h.do("GET", path, "")
	if got != status || body != "" && text != body {
		h.Errorf("%s: %d with %d bytes, want %d with %d: %s", path, got, len(text), status, len(body),
			text[:min(len(text), 200)])
	}
}

// blobsLeft returns how many messages are among the blobs.
func (h *keptHouse) blobsLeft() uint64 {
	h.Helper()
	s, err := h.server.JS.Stream(h.Context(), natskit.BlobStream)
	if err != nil {
		h.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// TestBlobsGoWithTheirRun: blobs of a run whose events have left the log are read as before; they expire and are
// deleted with it, those that no event names as well; a hold keeps them, and so does a run that has gone on.
func TestBlobsGoWithTheirRun(t *testing.T) { bothHouses(t, blobsGoWithTheirRun) }

func blobsGoWithTheirRun(h *keptHouse) {
	t := h.T
	paths, large := map[string]string{}, strings.Repeat("0123456789", 70_000) // more than a piece
	for _, run := range []string{"expires", "held", "goes_on", "deleted", "tenants"} {
		_, pack := endedRun(run, 10)
		h.stored(pack)
		paths[run] = h.put(run, large+run)
		h.wantBlob(paths[run], 200, large+run)
	}
	goesOn, _ := endedRun("goes_on", 10)
	h.logged(goOn(goesOn))
	if _, err := h.store.AddHold(t.Context(), schema.RunKey{Tenant: "acme", Run: "held"}, "case"); err != nil {
		t.Fatal(err)
	}
	if out, err := h.deleteRun("deleted"); err != nil || !strings.Contains(out, "3 messages") ||
		!strings.Contains(out, "left: nothing") {
		// mark, piece, rest
		t.Fatalf("%s, %v", out, err)
	}
	h.wantBlob(paths["deleted"], 404, "")
	if status, _ := h.do("PUT", "/deleted/blobs", "x"); status != 404 {
		t.Errorf("a blob of a deleted run: %d", status)
	}
	if _, err := h.deleteRun("held"); err == nil || !strings.Contains(err.Error(), "legal hold") {
		t.Fatalf("a held run: %v", err)
	}
	if r := h.keep(100*24*time.Hour, retention.Policy{}); r.Expired != 3 {
		t.Fatalf("%+v", r)
	}
	time.Sleep(1100 * time.Millisecond) // what is kept of pages is believed for a second
	h.wantBlob(paths["expires"], 410, "")
	h.wantBlob(paths["tenants"], 410, "")
	h.wantBlob(paths["held"], 200, large+"held")
	h.wantBlob(paths["goes_on"], 200, large+"goes_on")
	if status, body := h.do("PUT", "/expires/blobs", "x"); status != 410 ||
		!strings.Contains(body, schema.CodeCursorExpired) {
		t.Errorf("a blob of an expired run: %d %s", status, body)
	}
	if n := h.blobsLeft(); n != 6 {
		t.Errorf("%d messages are left, of two runs with three each", n)
	}
	h.wholeTenant()
}

// TestBlobsOutliveTheLog: blobs of a run that was archived are read when NATS has lost them, and expire with the run.
func TestBlobsOutliveTheLog(t *testing.T) { bothHouses(t, blobsOutliveTheLog) }

func blobsOutliveTheLog(h *keptHouse) {
	t := h.T
	_, pack := endedRun("archived", 10)
	h.stored(pack)
	large := strings.Repeat("0123456789", 70_000) // more than a piece
	path := h.put("archived", large)
	atLog, err := natskit.NewBlobs(h.server.Conn)
	if err != nil {
		t.Fatal(err)
	}
	a, err := (&archive.ArchiverFlags{}).NewArchiver(h.store, h.store, atLog, h.blobs, blob.Hooks{},
		slog.New(slog.DiscardHandler))
	if err == nil {
		err = a.One(t.Context(), pack.Key)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.server.JS.Stream(t.Context(), natskit.BlobStream)
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	h.wantBlob(path, 200, large)
	h.wantBlob(path[:len(path)-1]+"0", 404, "")
	var out bytes.Buffer
	verify := archive.VerifyCmd{BlobFlags: archive.BlobFlags{Blobs: h.folder}, Streams: cli.Streams{Out: &out}}
	if err := verify.Run(t.Context()); err != nil || strings.Count(out.String(), "ok\t") != 2 ||
		!strings.Contains(out.String(), "blob\t700000 bytes") {
		t.Errorf("verify: %s %v", out.String(), err)
	}
	if r := h.keep(100*24*time.Hour, retention.Policy{}); r.Expired != 1 || r.Blobs != 1 {
		t.Fatalf("%+v", r)
	}
	time.Sleep(1100 * time.Millisecond) // what is kept of pages is believed for a second
	h.wantBlob(path, 410, "")
	for o, err := range h.blobs.List(t.Context(), "") {
		t.Errorf("left: %s %v", o.Name, err)
	}
}

// TestPublishedOutputsAreMoved: agentstream publish of a file with an output of 600 KB, and of 10 MB. Every event has
// its place, and another node gives what was in the file.
func TestPublishedOutputsAreMoved(t *testing.T) {
	h := sqliteHouse(t)
	other := h.node()
	medium, large := `"`+strings.Repeat("0123456789", 60_000)+`"`, `["`+strings.Repeat("0123456789", 1_000_000)+`"]`
	file := filepath.Join(t.TempDir(), "run.ndjson")
	lines := []string{`{"type":"run.lifecycle","payload":{"state":"running"}}`}
	for i, output := range []string{medium, `"small"`, large} {
		lines = append(lines, fmt.Sprintf(`{"type":"tool.start","payload":{"call_id":"c%d","tool":"t"}}`, i),
			fmt.Sprintf(`{"type":"tool.end","payload":{"call_id":"c%d","ok":true,"output":%s,"duration_ms":1}}`, i, output))
	}
	lines = append(lines, `{"type":"run.lifecycle","payload":{"state":"done"}}`)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		h.Fatal(err)
	}
	var out bytes.Buffer
	c := publish.PublishCmd{RunID: "published", Files: []string{file}, Format: "native", Pace: "none"}
	c.Server, c.Out, c.Err = strings.TrimSuffix(h.url, "/v1/agent/runs"), &out, io.Discard
	if err := c.Run(h.Context()); err != nil || !strings.Contains(out.String(), "first_seq=1 last_seq=8 events=8") {
		h.Fatalf("%s %v", out.String(), err)
	}
	h.url = other
	status, text := h.do("GET", "/published/snapshot", "")
	var sum struct {
		Calls []struct {
			Output json.RawMessage
			Ref    string `json:"blob_ref"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal([]byte(text), &sum); err != nil || len(sum.Calls) != 3 ||
		string(sum.Calls[1].Output) != `"small"` {
		h.Fatalf("%d %.500s %v", status, text, err)
	}
	h.wantBlob("/published/blobs/"+sum.Calls[0].Ref, 200, medium)
	h.wantBlob("/published/blobs/"+sum.Calls[2].Ref, 200, large)
}

// wholeTenant deletes all of acme, with what a run has left that never began.
func (h *keptHouse) wholeTenant() {
	h.Helper()
	b, err := natskit.NewBlobs(h.server.Dial(h))
	if err != nil {
		h.Fatal(err)
	}
	rest := func(yield func([]byte, error) bool) { yield([]byte("x"), nil) }
	if _, _, err := b.Put(h.Context(), schema.RunKey{Tenant: "acme", Run: "never_began"}, "a/b", rest); err != nil {
		h.Fatal(err)
	}
	if _, err := h.store.RemoveHold(h.Context(), schema.RunKey{Tenant: "acme", Run: "held"}); err != nil {
		h.Fatal(err)
	}
	var out bytes.Buffer
	c := retentioncmd.DeleteTenantCmd{Tenant: "acme"}
	c.StoreFlags = h.where
	c.NATS, c.Blobs, c.Yes, c.Out, c.Err = h.server.Server.ClientURL(), h.folder, true, &out, io.Discard
	if err := c.Run(h.Context(), slog.New(slog.DiscardHandler)); err != nil || h.blobsLeft() != 0 {
		h.Errorf("%d messages are left: %s, %v", h.blobsLeft(), out.String(), err)
	}
}
