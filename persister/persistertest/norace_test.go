//go:build !race

package persistertest

import "testing"

// TestFloors compares each store with Memory after every batch, of eight random orders.
func TestFloors(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (Store, setFloor){
		"sqlite": sqliteFloor, "postgres": postgresFloor,
		"memory": func(*testing.T) (Store, setFloor) { m := NewMemory(); return m, m.SetFloor },
	} {
		t.Run(name, func(t *testing.T) { runFloors(t, open) })
	}
}
