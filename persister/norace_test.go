//go:build !race

package persister_test

import (
	"math/rand/v2"
	"testing"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestDecodeAgreesWithCheck: a persister looks at lines one by one; what it takes and refuses must be
// what the ground's own check of a whole pack takes and refuses.
func TestDecodeAgreesWithCheck(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	good := func() schema.Pack {
		w := persistertest.NewWriter(key("r"), day)
		return w.Pack("kid", persistertest.Lifecycle(schema.StateRunning),
			persistertest.Event(schema.TypeTextDelta, `{"text":"\ud800 {\"a\":[1,2e3,null,true]}"}`),
			persistertest.Event("custom.x", `{}`))
	}
	refused, taken := 0, 0
	for range 20_000 {
		p := good()
		for range 1 + rnd.IntN(2) {
			i := rnd.IntN(len(p.Body))
			switch rnd.IntN(4) {
			case 0:
				p.Body[i] = byte(rnd.IntN(256))
			case 1:
				p.Body[i] = `"\{}[],:0129 eu-`[rnd.IntN(16)]
			case 2:
				p.Body = append(p.Body[:i], p.Body[i+1:]...)
			case 3:
				p.Body = append(p.Body[:i], append([]byte{"\"{}[],0a\n"[rnd.IntN(9)]}, p.Body[i:]...)...)
			}
		}
		_, parsed := schema.ParsePack(schema.Subject(p.Key, p.Child, 1), p.Headers(), p.Body, 1)
		checked := p.Check()
		_, err := persister.Chunks(p)
		if want := parsed != nil || checked != nil; want != (err != nil) {
			t.Fatalf("parse: %v\ncheck: %v\nsift: %v\n%q", parsed, checked, err, p.Body)
		}
		if err != nil {
			refused++
		} else {
			taken++
		}
	}
	if refused < 1000 || taken < 1000 {
		t.Fatalf("only %d refused and %d taken: the test does not reach both", refused, taken)
	}
}
