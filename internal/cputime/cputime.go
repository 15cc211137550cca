package cputime

import (
	"runtime"
	"syscall"
	"time"
)

// Of returns the CPU time that work takes on its own thread. Goroutines that work starts, and the garbage
// collector, are not counted. Outside Linux it is the time of the whole process.
func Of(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ofThread()
	work()
	return ofThread() - before
}

// Process returns the CPU time that this process has taken so far.
func Process() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // RUSAGE_SELF is always valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
