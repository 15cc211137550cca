package live

import (
	"testing"

	"agentstream/edge/shape"
	"agentstream/schema"
)

// TestRingsAreShared: a tenant that watches very many runs leaves to the views of others as much as they would have
// beside a tenant that watches one.
func TestRingsAreShared(t *testing.T) {
	vs := &views{}
	for range 10_000 {
		vs.rings.Join("acme")
	}
	v := &view{all: vs, part: vs.rings.Join("globex")}
	v.now.Store(&viewState{})
	for i := range 1000 {
		v.add([]shape.Out{{Record: schema.Record{Seq: schema.Seq(i + 1), Line: make([]byte, 1000)}}}, schema.Seq(i+1), false)
	}
	if got := v.now.Load().bytes; got < ringBytes-2000 || got > ringBytes {
		t.Errorf("%d bytes are kept beside a tenant that watches 10,000 runs, want about %d", got, ringBytes)
	}
}
