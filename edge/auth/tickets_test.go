package auth

import (
	"errors"
	"testing"
	"time"
)

// TestTicketsAreShared: a tenant that takes tickets as fast as it can gets as many as its clients need at once, is
// refused then, also tickets of another kind, and gets new ones in time; another tenant's are there all the while.
func TestTicketsAreShared(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	tickets, err := NewTickets(TicketsConfig{Store: NewMemoryTickets(clock), Now: clock,
		Still: func(Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	issue := func(tickets *Tickets, tenant string) error {
		_, _, err := tickets.Issue(t.Context(), Caller{Tenant: tenant, Scopes: ScopeRead}, "run_1")
		return err
	}
	for i := range ticketsAtOnce {
		if err := issue(tickets, "acme"); err != nil {
			t.Fatalf("ticket %d: %v", i, err)
		}
	}
	for range 100 {
		if err := issue(tickets, "acme"); !errors.Is(err, ErrTickets) {
			t.Fatalf("one more: %v", err)
		}
		if err := issue(tickets.Of(Terms{Prefix: "other_"}), "acme"); !errors.Is(err, ErrTickets) {
			t.Fatalf("one more of another kind: %v", err)
		}
	}
	if err := issue(tickets, "globex"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	given := 0
	for range 1000 {
		now = now.Add(MaxTicketTTL / ticketsAtOnce / 2)
		if issue(tickets, "acme") == nil {
			given++
		}
	}
	if given < 499 || given > 501 {
		t.Errorf("%d tickets in the time of 500", given)
	}
}
