//go:build !race

package persistertest_test

import (
	"testing"

	"agentstream/persister/persistertest"
)

func TestMemoryFloors(t *testing.T) {
	persistertest.Floors(t, func(*testing.T) (persistertest.Store, persistertest.SetFloor) {
		m := persistertest.NewMemory()
		return m, m.SetFloor
	})
}
