package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"agentstream/fanout/fanouttest"
	"agentstream/fanout/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		l := memory.New()
		return fanouttest.Backend{Append: l.Append, Adopt: l.Adopt, History: l, Tail: l}
	})
}
