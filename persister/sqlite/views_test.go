package sqlite

import (
	"fmt"
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestViews: every row of every view can be read, of all scenarios and of values that do not belong where
// they stand; and what they count is what was written.
func TestViews(t *testing.T) {
	s := temp(t)
	for _, sc := range schematest.All() {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_" + sc.Name}, "20260228")
		for _, e := range sc.Events {
			persistertest.Put(t, s, w.Pack(e.ChildID, schema.Event{Type: e.Type, Payload: e.Payload}))
		}
	}
	nasty := []string{`null`, `true`, `-1`, `1.5`, `1e400`, `123456789012345678901234567890`, `9223372036854775807`,
		`"\u0000"`, `"\ud800"`, `[]`, `{}`, `"x"`,
		`[null,1,"x",{"type":"text"},{"type":"text","text":{"a":1}},[[]]]`,
		`{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807,"cost":1e300}`}
	for i, v := range append(nasty, persistertest.Hostile()...) {
		if len(v) > 20_000 {
			continue
		}
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, "20260228")
		for _, typ := range []string{schema.TypeCommandMessage, schema.TypeMessageStart, schema.TypeTextDelta,
			schema.TypeToolStart, schema.TypeToolEnd, schema.TypeMessageEnd} {
			body := `{`
			for _, name := range []string{"message_id", "role", "model", "usage", "content", "stop_reason", "error",
				"call_id", "tool", "input", "ok", "output", "duration_ms", "text"} {
				body += `"` + name + `":` + v + `,`
			}
			persistertest.Put(t, s, w.Pack("", persistertest.Event(typ, body[:len(body)-1]+`}`)))
		}
	}
	w := persistertest.NewWriter(schema.RunKey{Tenant: "globex", Run: "run_plain"}, "20260228")
	persistertest.Put(t, s, w.Pack("", persistertest.Event(schema.TypeMessageStart,
		`{"message_id":"m1","role":"assistant","model":"m-1"}`),
		persistertest.Event(schema.TypeTextDelta, `{"text":"cut "}`),
		persistertest.Event(schema.TypeTextDelta, `{"text":"short"}`),
		persistertest.Event(schema.TypeToolStart, `{"call_id":"c1","tool":"grep"}`),
		persistertest.Event(schema.TypeToolEnd, `{"call_id":"c1","ok":false,"error":"E","duration_ms":7}`),
		persistertest.Event(schema.TypeMessageEnd,
			`{"message_id":"m1","usage":{"prompt_tokens":3000000,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":1000000}}}`)))
	if _, err := s.write.Exec(`insert into agent_model_prices (model, input, output, cache_read) values ('m-*', 1, 1, 0.1), ('_', 9, 9, 9), ('\%', 9, 9, 9)`); err != nil {
		t.Fatal(err)
	}
	for view, want := range map[string]string{
		"agent_v_runs":        `select group_concat(run_id || ' ' || messages || ' ' || input_tokens || ' ' || models) from (select * from agent_v_runs) where koder_user_id = 'globex'`,
		"agent_v_messages":    `select group_concat(role || ' ' || text) from agent_v_messages where koder_user_id = 'globex'`,
		"agent_v_tool_calls":  `select group_concat(tool || ' ' || outcome || ' ' || error || ' ' || duration_ms) from agent_v_tool_calls where koder_user_id = 'globex'`,
		"agent_v_usage_daily": `select group_concat(day || ' ' || model || ' ' || input_tokens || ' ' || output_tokens || ' ' || cache_read_tokens || ' ' || cost) from agent_v_usage_daily where koder_user_id = 'globex'`,
	} {
		rows, err := s.read.Query(`select * from ` + view)
		if err != nil {
			t.Fatal(view, err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil || n == 0 {
			t.Errorf("%s: %d rows, %v", view, n, err)
		}
		_ = rows.Close()
		var got string
		if err := s.read.QueryRow(want).Scan(&got); err != nil || got != map[string]string{
			"agent_v_runs": "run_plain 1 2000000 m-1", "agent_v_messages": "assistant cut short", "agent_v_tool_calls": "grep failed E 7",
			"agent_v_usage_daily": "2026-02-28 m-1 2000000 5 1000000 2.100005"}[view] {
			t.Errorf("%s: %q, %v", view, got, err)
		}
	}
}
