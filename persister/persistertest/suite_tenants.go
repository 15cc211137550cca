package persistertest

import (
	"context"
	"slices"

	"agentstream/schema"
)

// whoHasRuns walks the tenants: each once, byte by byte in order.
func (s *suite) whoHasRuns() {
	tenants := []string{"Zeta", "acme", "acme-2", "b"} // capitals come first, whatever the locale
	for _, tenant := range []string{"b", "acme", "Zeta", "acme-2"} {
		for _, run := range []string{"run_1", "run_2"} {
			w := NewWriter(schema.RunKey{Tenant: tenant, Run: run}, day)
			s.append(w.Pack("", Lifecycle(schema.StateRunning)))
		}
	}
	var got []string
	for after := ""; ; {
		next, err := s.catalog().NextTenant(s.Context(), after)
		if err != nil {
			s.Fatal(err)
		}
		if next == "" {
			break
		}
		got = append(got, next)
		after = next
	}
	if !slices.Equal(got, tenants) {
		s.Fatalf("tenants are %q, want %q", got, tenants)
	}
}

// NextTenant gives the first tenant behind after.
func (m *Memory) NextTenant(ctx context.Context, after string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := ""
	for key := range m.runs {
		if key.Tenant > after && (next == "" || key.Tenant < next) {
			next = key.Tenant
		}
	}
	return next, ctx.Err()
}
