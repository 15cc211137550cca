package process

import (
	"os"
	"strconv"
)

// monitorSlack is how much later than asked for the scheduler's monitor may wake up, in nanoseconds.
const monitorSlack = "1000000"

// easeMonitor lets the monitor of Go's scheduler sleep for longer. While a process works in small pieces, the monitor
// asks for 20 µs of sleep at a time, and Linux wakes it when that and the thread's timer slack are over: every 75 µs or
// so, which took a fifteenth of the CPU of single events (docs/decisions/0054). Nothing that it does is due sooner than
// after a millisecond but taking over from a thread that is in a system call. It needs the right CAP_SYS_NICE; without
// it all stays as it was, and timer slack is for whoever starts the process to set (systemd: TimerSlackNSec).
func easeMonitor() {
	if id := monitorThread(); id != "" {
		_ = os.WriteFile("/proc/"+id+"/timerslack_ns", []byte(monitorSlack), 0) // see above
	}
}

// monitorThread returns the id of the monitor's thread, the first that the runtime begins; "" when it is not known.
func monitorThread() string {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return ""
	}
	first, own := 0, os.Getpid()
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil && id > own && (first == 0 || id < first) {
			first = id
		}
	}
	if first == 0 {
		return ""
	}
	return strconv.Itoa(first)
}
