package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

// TestAuditView: an audit feed's lines are rows of a view, for a role of the feed's tenant, and not for one of the
// tenant alone.
func TestAuditView(t *testing.T) {
	admin, owner := owned(t)
	s := open(t, owner)
	name := ask[string](t, pool(t, admin), `select current_database()`)
	line := schema.Event{Type: "custom.audit.decided",
		Payload: []byte(`{"action":"decided","run_id":"r1","caller":"ann","via":"qoder","event":"command.answer","seq":7}`)}
	counted := schema.Event{Type: "custom.audit.refused",
		Payload: []byte(`{"action":"refused","caller":"ben","reason":"forbidden","count":12}`)}
	for _, key := range []schema.RunKey{{Tenant: "_audit-acme", Run: "audit"}, {Tenant: "_audit-zeta", Run: "audit"},
		{Tenant: "acme", Run: "audit"}, {Tenant: "_audit-acme", Run: "other"}} {
		put(t, s, key, []schema.Event{{Type: schema.TypeSessionCreated, Payload: []byte(`{}`)}, line, counted})
	}
	for role, tenant := range map[string]string{"auditor_" + name: "_audit-acme", "analyst_" + name: "acme"} {
		exec(t, pool(t, admin), `create role `+role+` login`)
		if err := tables.GrantAnalyst(t.Context(), owner, role, tenant); err != nil {
			t.Fatal(err)
		}
		said := looked(t, as(admin, role), `select koder_user_id, action, run_id, caller, via, event, event_seq, reason, count from agent_v_audit order by seq`)
		want := map[string]string{"acme": "", "_audit-acme": "_audit-acme|decided|r1|ann|qoder|command.answer|7||1\n_audit-acme|refused||ben||||forbidden|12\n"}[tenant]
		if said != want {
			t.Errorf("%s: %s, want %s", role, said, want)
		}
	}
	if plan := fmt.Sprint(looked(t, owner+"&options=-c%20agentstream.tenant%3D*",
		`explain select * from agent_v_audit`)); !strings.Contains(plan, "Index") {
		t.Errorf("the view reads all events: %s", plan)
	}
}
