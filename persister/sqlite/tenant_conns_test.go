package sqlite

import (
	"context"
	"testing"
	"time"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestReadsOfOneTenantHoldNoConnections: reads of one tenant that do not come to their end leave connections to others,
// and to the work for all.
func TestReadsOfOneTenantHoldNoConnections(t *testing.T) {
	s := temp(t)
	quick := schema.RunKey{Tenant: "globex", Run: "run_2"}
	persistertest.Put(t, s, persistertest.NewWriter(quick, "20260301").Texts("", 5))
	const readers = 20
	goOn, began, read := make(chan struct{}), make(chan struct{}, readers), make(chan error, readers)
	for range readers {
		go func() {
			read <- s.each(t.Context(), "acme", func(func(...any) error) (bool, error) {
				began <- struct{}{}
				<-goOn
				return true, nil
			}, `select 1`)
		}()
	}
	<-began
	for in := 0; in < readers; time.Sleep(time.Millisecond) { // until each has a connection or waits for one
		_, waiting := s.readers.CountHeld("acme")
		in = waiting + s.read.Stats().InUse + int(s.read.Stats().WaitCount)
	}
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 10 {
		if lines, err := s.Page(within, quick, "20260301", 0, 5); err != nil || len(lines) != 5 {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		if err := s.Ping(within); err != nil {
			t.Fatal(err)
		}
	}
	close(goOn)
	for range readers {
		if err := <-read; err != nil {
			t.Error(err)
		}
	}
}
