package sink

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/schema"
	"agentstream/tap"
)

// event returns an event of a run.
func event(run string, seq int) tap.Event {
	line := fmt.Sprintf(`{"id":"evt_%s_%d","ts":"2026-01-02T03:04:05Z","type":"text.delta","run_id":%q,"child_id":null,"seq":%d,"payload":{"text":"<é> %d"}}`,
		run, seq, run, seq, seq)
	return tap.Event{Run: schema.RunKey{Tenant: "acme", Run: run}, Seq: schema.Seq(seq),
		ID:   fmt.Sprintf("evt_%s_%d", run, seq),
		Type: "text.delta", TS: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Line: []byte(line)}
}

func open(t *testing.T, o Options, addresses ...string) tap.Receiver {
	t.Helper()
	s, err := Open(t.Context(), addresses, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(t *testing.T, s tap.Receiver, events ...tap.Event) {
	t.Helper()
	if refused, err := s.Write(t.Context(), events); err != nil || len(refused) > 0 {
		t.Fatalf("%+v, %v", refused, err)
	}
}

// TestFile: lines are appended after the last whole one, and the file is rotated.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out [1].jsonl")
	if err := os.WriteFile(path, []byte("{\"whole\":1}\n{\"torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := open(t, Options{Stdout: &out}, "file:"+strings.ReplaceAll(path, " ", "%20")+"?rotate=1MiB&keep=2", "stdout:")
	write(t, s, event("r", 1), event("r", 2))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "{\"whole\":1}\n" + out.String(); string(text) != want || strings.Count(want, "\n") != 3 ||
		!strings.Contains(want, `{"tenant":"acme","id":"evt_r_1"`) {
		t.Errorf("%s\nwant %s", text, want)
	}
	big := event("r", 3)
	big.Line = []byte(`{"x":"` + strings.Repeat("y", 1<<20) + `"}`)
	for range 4 {
		write(t, s, big)
	}
	older, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.2*"))
	if err != nil || len(older) != 2 {
		t.Errorf("%d older files, %v", len(older), err)
	}
}

// TestAddresses: an address that cannot be used is refused, and no password is repeated.
func TestAddresses(t *testing.T) {
	for _, address := range []string{"", "hush", "ftp://u:hush@h", "file:", "file://host/hush", "file:x?rotate=0",
		"file:x?rotate=hush", "file:x?kep=1",
		"stdout:?x=1", "webhook+https://", "webhook+http://u:hush@example.com/",
		"webhook+https://example.com/?form=hush", "nats://u:hush@h/",
		"nats://h/agent", "nats://h/agent.x", "nats://h/a.*", "clickhouse+http://u:hush@127.0.0.1:1/?table=a%20b",
		"postgres://u:hush@[bad/x", "%zz:hush"} {
		if _, err := Open(t.Context(), []string{address},
			Options{Stdout: &bytes.Buffer{}, Timeout: time.Second}); err == nil {
			t.Errorf("%s is taken", address)
		} else if strings.Contains(err.Error(), ":hush@") || strings.Contains(err.Error(), "u:hush") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if name := Name("postgres://me:hush@host/db?table=x"); name != "postgres://host/db" {
		t.Error(name)
	}
}
