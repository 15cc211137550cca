package limits

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge/ends"
)

// send is one request of a tenant; it gives the seconds of Retry-After, 0 for one that is taken.
func send(t *testing.T, l *Limiter, tenant string, events int, bytes int64) int {
	t.Helper()
	m, err := l.Enter(tenant, true)
	if err == nil {
		err = l.Spend(m, events, bytes)
		l.Leave(m, true)
	}
	if err == nil {
		return 0
	}
	over := new(ends.LimitError)
	if !errors.Is(err, ends.ErrLimited) || !errors.As(err, &over) || over.Seconds() < 1 {
		t.Fatalf("%v", err)
	}
	return over.Seconds()
}

func limited(all Limit, of map[string]Limit) *Limiter {
	return New(all, of)
}

// A tenant that sends as much as it can, of any sizes, gets what its rate says: over a while not more than that
// and one request, and not less when it comes when it was told to.
func TestRatesAreKept(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			limit := Limit{Events: 1 + rnd.IntN(2000), Bytes: 1 + rnd.Int64N(1<<20)}
			l := limited(limit, nil)
			largest, began := 0, time.Now()
			events, bytes := 0, int64(0)
			for time.Since(began) < 10*time.Minute {
				n := 1 + rnd.IntN(3*limit.Events)
				size := int64(n) * limit.Bytes / int64(limit.Events) // both are used up at about the same pace
				if size == 0 {
					size = 1
				}
				after := send(t, l, "acme", n, size)
				if after == 0 {
					events, bytes, largest = events+n, bytes+size, max(largest, n)
					continue
				}
				// A moment before it is refused, then it is taken: unless the wait was rounded up to a second.
				time.Sleep(time.Duration(after-1) * time.Second)
				if after > 1 && send(t, l, "acme", 1, 1) == 0 {
					t.Fatalf("%+v: taken %ds early", limit, 1)
				}
				time.Sleep(time.Second)
				if again := send(t, l, "acme", 1, 1); again != 0 {
					t.Fatalf("%+v: told to come after %d s, then after %d s", limit, after, again)
				}
				events, bytes = events+1, bytes+1
			}
			took := time.Since(began).Seconds()
			if most := float64(limit.Events)*(took+1) + float64(largest) + 1; float64(events) > most {
				t.Errorf("%+v: %d events in %.0f s", limit, events, took)
			}
			if got := max(float64(events)/float64(limit.Events), float64(bytes)/float64(limit.Bytes)); got < 0.5*took {
				t.Errorf("%+v: only %.0f of %.0f s were used", limit, got, took)
			}
		})
	}
}

// Each tenant has its own, those that are named have what is said of them, and one without bounds leaves nothing.
func TestLimitsOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(Limit{Events: 10}, map[string]Limit{"big": {Events: 1000}, "free": {}, "slow": {Bytes: 5}})
		for tenant, want := range map[string]int{"a": 10, "b": 9, "big": 0, "free": 0} {
			if got := send(t, l, tenant, 110, 1<<20); got != 0 {
				t.Errorf("%s: the first is refused for %d s", tenant, got)
			}
			if tenant == "b" {
				time.Sleep(time.Second)
			}
			if got := send(t, l, tenant, 1, 1); got != want && got != want+1 {
				t.Errorf("%s: after %d s, want %d", tenant, got, want)
			}
		}
		if send(t, l, "slow", 1000, 50) != 0 || send(t, l, "slow", 1, 1) != 9 && send(t, l, "slow", 1, 1) != 10 {
			t.Errorf("bytes: %d", send(t, l, "slow", 1, 1))
		}
		if l.meters["free"] != nil {
			t.Error("a tenant without bounds is remembered")
		}
	})
	if limited(Limit{}, nil) != nil || send(t, nil, "a", 1, 1) != 0 {
		t.Error("no limit limits")
	}
}

// Requests at once are counted, also those that are refused later; posts are not requests.
func TestRequestsAtOnce(t *testing.T) {
	l := limited(Limit{Requests: 2, Events: 5}, nil)
	a, _ := l.Enter("acme", true)
	b, err := l.Enter("acme", true)
	if err != nil {
		t.Fatal(err)
	}
	if send(t, l, "acme", 1, 1) != 1 || send(t, l, "other", 1, 1) != 0 {
		t.Error("a third request is taken, or another tenant's is not")
	}
	if m, err := l.Enter("acme", false); err != nil || l.Spend(m, 100, 1) != nil {
		t.Errorf("a post: %v", err)
	}
	if l.Spend(b, 1, 1) == nil {
		t.Error("more than the rate")
	}
	l.Leave(a, true)
	l.Leave(b, true)
	if m := l.meters["acme"]; m.open != 0 || m.users != 1 {
		t.Errorf("%+v", m)
	}
}

// A million tenants leave little behind: those that are idle are forgotten, those that are not up to a bound, and
// those that are at work never.
func TestIdleTenantsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(Limit{Events: 1, Requests: 1}, nil)
		busy, err := l.Enter("busy", true)
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		for i := range 200_000 {
			if send(t, l, fmt.Sprint("t", i), 1, 1) != 0 {
				t.Fatal("a new tenant is refused")
			}
			if most = max(most, len(l.meters)); i%1000 == 999 {
				time.Sleep(time.Second)
			}
		}
		if most > 4000 || len(l.meters) != l.recent.Len() {
			t.Errorf("%d tenants were remembered, of which 1,000 a second are new", most)
		}
		for i := range maxMeters + 5000 {
			send(t, l, fmt.Sprint("debtor", i), 100_000, 1)
		}
		if n := len(l.meters); n > maxMeters+1 || n != l.recent.Len() {
			t.Errorf("%d tenants in debt are remembered", n)
		}
		if l.meters["busy"] != busy || send(t, l, "busy", 1, 1) != 1 {
			t.Error("a tenant at work is forgotten")
		}
	})
}
