package postgres_test

import (
	"context"
	"testing"
	"time"

	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// TestReadsOfOneTenantHoldNoConnections: statements of one tenant that do not come to their end leave connections to
// others, and to the work for all.
func TestReadsOfOneTenantHoldNoConnections(t *testing.T) {
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: migrated(t), MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	quick := schema.RunKey{Tenant: "globex", Run: "run_2"}
	persistertest.Put(t, s, persistertest.NewWriter(quick, "20260301").Texts("", 5))
	const readers = 20
	goOn, began, read := make(chan struct{}), make(chan struct{}, readers), make(chan error, readers)
	for range readers {
		go func() {
			read <- s.Within(t.Context(), "acme", func() {
				began <- struct{}{}
				<-goOn
			})
		}()
	}
	<-began
	for !s.Settled("acme", readers) { // until each has a connection or waits for one
		time.Sleep(time.Millisecond)
	}
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 10 {
		if lines, err := s.Page(within, quick, "20260301", 0, 5); err != nil || len(lines) != 5 {
			t.Errorf("%d lines, %v", len(lines), err)
			break
		}
		if err := s.Ping(within); err != nil {
			t.Error(err)
			break
		}
	}
	close(goOn)
	for range readers {
		if err := <-read; err != nil {
			t.Error(err)
		}
	}
}
