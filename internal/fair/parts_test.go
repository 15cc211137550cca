package fair_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"agentstream/internal/fair"
)

// A tenant that has very much leaves to others what they would have beside one that has little; all together never have
// more than the bound, and what has left counts no more.
func TestParts(t *testing.T) {
	var p fair.Parts
	const total = 16 << 20
	small := p.Join("small")
	if got := small.Share(total); got != total {
		t.Errorf("alone: %d", got)
	}
	var many []*fair.Part
	for range 5000 {
		many = append(many, p.Join("big"))
	}
	if got := small.Share(total); got != total/2 {
		t.Errorf("beside a tenant that has 5,000: %d", got)
	}
	if got := many[0].Share(total); got != total/2/5000 {
		t.Errorf("one of 5,000: %d", got)
	}
	for _, m := range many {
		m.Leave()
	}
	if got := small.Share(total); got != total {
		t.Errorf("alone again: %d", got)
	}
	small.Leave()
	rnd := rand.New(rand.NewPCG(1, 2))
	var held []*fair.Part
	for range 5000 {
		if len(held) > 0 && rnd.IntN(3) == 0 {
			i := rnd.IntN(len(held))
			held[i].Leave()
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		} else {
			held = append(held, p.Join(strconv.Itoa(rnd.IntN(1+rnd.IntN(30)))))
		}
		sum := 0
		for _, h := range held {
			sum += h.Share(total)
		}
		if sum > total {
			t.Fatalf("%d of %d are given to %d", sum, total, len(held))
		}
	}
}
