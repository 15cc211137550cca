package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

// The list that the reaper walks: open runs of all tenants that are quiet, on many pages.
func TestQuietRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	begin := func(tenant, run, day string, events ...schema.Event) {
		w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: run}, day)
		chunks, err := persister.Chunks(w.Pack("", events...))
		if err == nil {
			_, err = store.Append(t.Context(), chunks)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i := range quietPage + 3 {
		run := fmt.Sprintf("run_%03d", i)
		want = append(want, "acme/"+run)
		begin("acme", run, "20260228", persistertest.Lifecycle(schema.StateRunning))
	}
	text := persistertest.Event(schema.TypeTextDelta, `{"text":"x"}`)
	begin("acme", "over", "20260228", persistertest.Lifecycle(schema.StateDone))
	begin("acme", "young", "20260303", text)
	begin("b", "no_state", "20260228", text)
	begin("b", "ahead", "29990101", text) // its clock is wrong
	begin("c", "paused", "20260228", persistertest.Lifecycle(schema.StatePaused))
	want = append(want, "b/ahead", "b/no_state", "c/paused")
	var got []string
	for key, err := range (quietRuns{store: store}).Quiet(t.Context(), time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key.String())
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("%d runs, want %d: %q", len(got), len(want), got[max(0, len(got)-6):])
	}
	for range (quietRuns{store: store}).Quiet(t.Context(), time.Now()) {
		break // a walk that is left ends
	}
	begin("c", "otel_4bf92f3577b34da6a3ce929d0e0e4736", "20260228", persistertest.Lifecycle(schema.StateRunning))
	got = nil
	for key, err := range (quietRuns{store: store, traces: true}).Quiet(t.Context(), time.Now()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key.String())
	}
	if want := []string{"c/otel_4bf92f3577b34da6a3ce929d0e0e4736"}; !slices.Equal(got, want) {
		t.Errorf("of traces alone: %q", got)
	}
}
