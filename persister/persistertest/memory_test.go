package persistertest_test

import (
	"testing"

	"agentstream/persister/persistertest"
)

func TestMemory(t *testing.T) {
	persistertest.Run(t, func(*testing.T) persistertest.Store { return persistertest.NewMemory() })
}
