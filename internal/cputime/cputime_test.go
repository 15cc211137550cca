package cputime

import (
	"testing"
	"time"
)

// TestOf checks that work on the thread is counted and that waiting is not.
func TestOf(t *testing.T) {
	whole := Process()
	sum := 0
	worked := Of(func() {
		for before := ofThread(); ofThread()-before < 20*time.Millisecond; {
			sum++
		}
	})
	waited := Of(func() { time.Sleep(20 * time.Millisecond) })
	if worked < 20*time.Millisecond || waited > worked/2 || Process()-whole < worked {
		t.Errorf("work took %v, waiting %v, the process %v", worked, waited, Process()-whole)
	}
}
