package archive

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

// TestRunsOfAllTenants: operators see the runs of all tenants, or of those that they name, and find them by words and
// states.
func TestRunsOfAllTenants(t *testing.T) {
	data := t.TempDir()
	path := filepath.Join(data, "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for i, tenant := range []string{"acme", "globex", "initech"} {
		for n := range 3 {
			w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: fmt.Sprintf("%s_%d", tenant, n)}, "20260228")
			state := schema.StateDone
			if n == i {
				state = schema.StateError
			}
			chunks, err := persister.Chunks(w.Pack("", persistertest.Event(schema.TypeSessionCreated,
				fmt.Sprintf(`{"title":"The invoice %d","agent":"billing"}`, n))), w.Pack("", persistertest.Lifecycle(state)))
			if err == nil {
				_, err = store.Append(t.Context(), chunks)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for want, c := range map[string]RunsCmd{
		"acme_0 acme_1 acme_2 globex_0 globex_1 globex_2 initech_0 initech_1 initech_2": {Limit: 20},
		"globex_0 globex_1 globex_2": {Limit: 20, Tenant: []string{"globex"}},
		"acme_0 globex_1 initech_2":  {Limit: 20, State: []schema.RunState{schema.StateError}},
		"acme_1 globex_1 initech_1":  {Limit: 20, Search: "Invoice 1"},
		"acme_2 initech_2":           {Limit: 20, Search: "invoice 2", Tenant: []string{"initech", "acme", "nobody"}},
		"no such runs":               {Limit: 20, Search: "zebra"},
	} {
		var out, errs bytes.Buffer
		c.StoreFlags = StoreFlags{Data: data, Streams: cli.Streams{Out: &out, Err: &errs}}
		if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		text, found := out.String()+errs.String(), 0
		for _, word := range strings.Fields(want) {
			if !strings.Contains(text, word) {
				t.Errorf("%s is not in\n%s", word, text)
			}
			found++
		}
		if want != "no such runs" && strings.Count(text, "The invoice") != found {
			t.Errorf("want %s, got\n%s", want, text)
		}
	}
	var out bytes.Buffer
	one := RunsCmd{Limit: 1, JSON: true, StoreFlags: StoreFlags{Data: data, Streams: cli.Streams{Out: &out}}}
	if err := one.Run(t.Context(), slog.New(slog.DiscardHandler)); err != nil || strings.Count(out.String(), "\n") != 1 ||
		!strings.Contains(out.String(), `"title":"The invoice`) {
		t.Errorf("one run: %v\n%s", err, out.String())
	}
	if err := (&RunsCmd{}).Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--limit must be from 1") {
		t.Errorf("no limit: %v", err)
	}
}
