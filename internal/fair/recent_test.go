package fair_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"agentstream/internal/fair"
)

// A tenant that fills what is kept pushes out its own, the oldest first, and nothing of those that hold less.
func TestRecentLetsTheLargestPay(t *testing.T) {
	var r fair.Recent[string]
	const bound = 100
	small := r.Push("small", 10, "small0")
	for i := range 1000 {
		r.Push("big", 10, fmt.Sprint("big", i))
		for v, ok := r.Over(bound); ok; v, ok = r.Over(bound) {
			if want := fmt.Sprint("big", i-9); v != want {
				t.Fatalf("%s goes, want %s", v, want)
			}
		}
	}
	if r.Weight() != bound || r.Len() != 10 || r.Last().Value != "big991" {
		t.Errorf("%d of %d values, next %s", r.Weight(), r.Len(), r.Last().Value)
	}
	r.Touch(r.Last())
	if r.Last().Value != "big992" {
		t.Errorf("next %s", r.Last().Value)
	}
	// What is in use counts against its tenant, and not against the others.
	r.Weigh("big", 500)
	for v, ok := r.Over(bound); ok; v, ok = r.Over(bound) {
		if v == "small0" {
			t.Error("a tenant pays for what another one uses")
		}
	}
	if r.Len() != 1 {
		t.Errorf("%d values are left", r.Len())
	}
	r.Remove(small)
	r.Remove(small)
	r.Weigh("big", -500)
	if r.Weight() != 0 || r.Len() != 0 || r.Last() != nil {
		t.Errorf("%d of %d values", r.Weight(), r.Len())
	}
}

// Whatever happens, what is kept is what was counted, and a tenant that holds no more than its part loses nothing.
func TestRecentAnyUse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var r fair.Recent[int]
	const bound = 1000
	kept, weights := map[int]*fair.Kept[int]{}, map[int]int{}
	for i := range 20_000 {
		tenant := rnd.IntN(1 + rnd.IntN(20))
		kept[i*32+tenant], weights[tenant] = r.Push(fmt.Sprint(tenant), 1+i%7, i*32+tenant), weights[tenant]+1+i%7
		if i%3 == 0 {
			for v, k := range kept {
				r.Remove(k)
				delete(kept, v)
				weights[v%32] -= 1 + v/32%7
				break
			}
		}
		for v, ok := r.Over(bound); ok; v, ok = r.Over(bound) {
			held := 0
			for _, w := range weights {
				if w > 0 {
					held++
				}
			}
			if weights[v%32] <= bound/held {
				t.Fatalf("tenant %d loses something, and has %d of %d among %d", v%32, weights[v%32], bound, held)
			}
			delete(kept, v)
			weights[v%32] -= 1 + v/32%7
		}
		if r.Weight() > bound || r.Len() != len(kept) {
			t.Fatalf("%d, %d values, %d kept", r.Weight(), r.Len(), len(kept))
		}
	}
}
