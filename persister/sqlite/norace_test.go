//go:build !race

package sqlite

import (
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestFloors compares the store with Memory after every batch, of eight random orders.
func TestFloors(t *testing.T) {
	persistertest.Floors(t, func(t *testing.T) (persistertest.Store, persistertest.SetFloor) {
		s := temp(t)
		return s, func(key schema.RunKey, floor schema.Seq) { setFloor(t, s, key, floor) }
	})
}
