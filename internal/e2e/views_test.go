package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

// TestViewsOfRecordings: what the analysts' views say of real providers' streams is what their folds say.
func TestViewsOfRecordings(t *testing.T) {
	beside(t)
	dsn := testkit.Postgres(t)
	if _, err := tables.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	seen := 0
	for folder, decoder := range map[string]func(provider.Config) *provider.Decoder{
		"anthropic": anthropic.NewDecoder, "openai-chat": openai.NewChatDecoder, "openai-responses": openai.NewResponsesDecoder, "gemini": gemini.NewDecoder,
	} {
		names, read := providertest.Recordings[json.RawMessage](t, 8, folder)
		for name := range names {
			key := schema.RunKey{Tenant: "acme", Run: "run_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)}
			w := persistertest.NewWriter(key, "20260301")
			var fold schema.Fold
			var packs []schema.Pack
			for _, e := range providertest.Decode(t, decoder(provider.Config{}), read(name)) {
				p := w.Pack(e.ChildID, schema.Event{Type: e.Type, Payload: e.Payload})
				packs = append(packs, p)
				e.Seq = p.First
				fold.Add(&e)
			}
			chunks, err := persister.Chunks(packs...)
			if err == nil {
				_, err = store.Append(t.Context(), chunks)
			}
			if err != nil {
				t.Fatal(err)
			}
			seen += viewsOfFold(t, conn, key, &fold)
		}
	}
	if seen < 80 {
		t.Errorf("only %d messages and calls", seen)
	}
}

// viewsOfFold compares the messages and calls of a run, and returns their number.
func viewsOfFold(t *testing.T, conn *pgx.Conn, key schema.RunKey, fold *schema.Fold) (seen int) {
	t.Helper()
	for _, m := range fold.Messages {
		var want strings.Builder
		for _, b := range m.Blocks {
			if b.Kind == "text" {
				want.WriteString(b.Text.String())
			}
		}
		var text, id, role, model, stop string
		var end schema.Seq
		err := conn.QueryRow(t.Context(), `select text, message_id, role, coalesce(model, ''), coalesce(stop_reason, ''), coalesce(end_seq, 0)
			from agent_v_messages where run_id = $1 and seq = $2`, key.Run, m.Start).Scan(&text, &id, &role, &model, &stop, &end)
		if err != nil || text != want.String() || id != m.ID || role != m.Role || model != m.Model ||
			stop != m.StopReason || end != m.End {
			t.Errorf("%s, message at %d: %v, %.80q %q %q %q %q to %d, want %.80q %q %q %q %q to %d", key.Run, m.Start, err,
				text, id, role, model, stop, end, want.String(), m.ID, m.Role, m.Model, m.StopReason, m.End)
		}
		seen++
	}
	for _, c := range fold.Calls {
		if c.Start == c.End {
			continue // its tool.start is not there
		}
		var id, tool, outcome string
		var end schema.Seq
		err := conn.QueryRow(t.Context(), `select call_id, tool, coalesce(outcome, ''), coalesce(end_seq, 0) from agent_v_tool_calls
			where run_id = $1 and seq = $2`, key.Run, c.Start).Scan(&id, &tool, &outcome, &end)
		if err != nil || id != c.ID || tool != c.Tool || end != c.End || c.OK != (outcome == "ok") {
			t.Errorf("%s, call at %d: %v, %q %q %q to %d, want %q %q to %d", key.Run, c.Start, err, id, tool, outcome,
				end, c.ID, c.Tool, c.End)
		}
		seen++
	}
	return seen
}
