//go:build !race

package persistertest

import "testing"

// TestFloors compares each store with Memory after every batch, of eight random orders.
func TestFloors(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (SuiteStore, setFloor){
		"sqlite": sqliteFloor, "postgres": postgresFloor,
		"memory": func(*testing.T) (SuiteStore, setFloor) { m := NewMemory(); return m, m.SetFloor },
	} {
		t.Run(name, func(t *testing.T) { runFloors(t, open) })
	}
}
