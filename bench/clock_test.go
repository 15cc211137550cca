package bench

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"
)

// stopwatch takes the time of one run, and the CPU time of both processes in it.
type stopwatch struct {
	server int // pid

	began  time.Time
	before usage

	wall   time.Duration
	own    time.Duration // CPU of this process
	served time.Duration // CPU of the NATS server
	others float64       // share of the machine's CPU taken by anything else, 0 to 1
	events int
	note   string // for the table, when the run has something to say
}

type usage struct{ own, server, machine time.Duration }

func (w *stopwatch) start() {
	w.before = w.usage()
	w.began = time.Now()
}

// stop ends the measurement of a run of so many events.
func (w *stopwatch) stop(events int) {
	w.wall = time.Since(w.began)
	now := w.usage()
	w.events = events
	w.own, w.served = now.own-w.before.own, now.server-w.before.server
	all := w.wall * time.Duration(runtime.NumCPU())
	w.others = min(1, max(0, float64(now.machine-w.before.machine-w.own-w.served)/float64(all)))
}

// rate is events per second.
func (w *stopwatch) rate() []float64 { return []float64{float64(w.events) / w.wall.Seconds()} }

func (w *stopwatch) usage() usage {
	return usage{own: cpuOf(os.Getpid()), server: cpuOf(w.server), machine: cpuOfAll()}
}

// tick is the unit of proc(5), USER_HZ, which is 100 wherever Go runs on Linux.
const tick = 10 * time.Millisecond

// cpuOf is the CPU time of a process; 0 where there is no proc(5).
func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in parentheses may hold spaces. utime and stime are the 12th and 13th field behind it.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	return ticks(f[11]) + ticks(f[12])
}

// cpuOfAll is the CPU time that was not idle, of all processes, the time stolen by a hypervisor
// included.
func cpuOfAll() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	f := bytes.Fields(line) // cpu user nice system idle iowait irq softirq steal …
	var sum time.Duration
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		sum += ticks(f[i])
	}
	return sum
}

func ticks(b []byte) time.Duration {
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return time.Duration(n) * tick
}
