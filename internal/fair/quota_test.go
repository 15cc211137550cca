package fair_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/internal/fair"
)

// A tenant has as many as it may at once, then one each time one has gone; what comes back may be had again, and
// another tenant's are there all the while.
func TestQuota(t *testing.T) {
	const most = 100
	now := time.Unix(1_700_000_000, 0)
	q := fair.NewQuota(most, time.Hour)
	drain := func(tenant string) (n int) {
		for q.Count(tenant, now) {
			n++
		}
		return n
	}
	if n := drain("a"); n != most {
		t.Errorf("%d at once", n)
	}
	q.Return("a")
	q.Return("b") // has none
	if n := drain("a"); n != 1 {
		t.Errorf("%d after one came back", n)
	}
	if n := drain("b"); n != most {
		t.Errorf("another tenant has %d", n)
	}
	now = now.Add(30 * time.Minute)
	if n := drain("a"); n != most/2 {
		t.Errorf("%d in half of the time", n)
	}
	now = now.Add(2 * time.Hour)
	for i := range most {
		if !q.Count(fmt.Sprint("tenant_", i), now) {
			t.Fatal("a new tenant has none")
		}
	}
	if n := drain("a"); n != most {
		t.Errorf("%d after all have gone", n)
	}
}
