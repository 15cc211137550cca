package sqlite

import (
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestAuditView: an audit feed's lines are rows of a view.
func TestAuditView(t *testing.T) {
	s := temp(t)
	for _, tenant := range []string{"_audit-acme", "acme", "_audiu"} {
		w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: "audit"}, "20260228")
		persistertest.Put(t, s, w.Pack("", schema.Event{Type: schema.TypeSessionCreated, Payload: []byte(`{}`)},
			schema.Event{Type: "custom.audit.refused",
				Payload: []byte(`{"action":"refused","caller":"ben","reason":"forbidden","count":12}`)}))
	}
	var tenant, action, caller, reason string
	var count, rows int
	err := s.read.QueryRow(`select koder_user_id, action, caller, reason, count, (select count(*) from agent_v_audit) from agent_v_audit`).
		Scan(&tenant, &action, &caller, &reason, &count, &rows)
	if err != nil || tenant != "_audit-acme" || action != "refused" || caller != "ben" || reason != "forbidden" ||
		count != 12 || rows != 1 {
		t.Errorf("%s %s %s %s %d of %d: %v", tenant, action, caller, reason, count, rows, err)
	}
}
