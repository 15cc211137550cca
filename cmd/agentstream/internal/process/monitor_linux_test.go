package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMonitorIsEased: the thread whose slack is set is the one that sleeps by itself, which no other thread of the
// runtime does for longer than an instant.
func TestMonitorIsEased(t *testing.T) {
	id := monitorThread()
	if id == "" {
		t.Fatal("no thread found")
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the monitor sleeps for long when nothing runs
		for {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	asleep := strconv.Itoa(syscall.SYS_NANOSLEEP) + " "
	for end := time.Now().Add(10 * time.Second); ; {
		doing, err := os.ReadFile("/proc/self/task/" + id + "/syscall")
		if err != nil {
			t.Logf("what threads do may not be seen here: %v", err)
			break
		}
		if strings.HasPrefix(string(doing), asleep) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("thread %s is in system call %s", id, doing)
		}
	}
	easeMonitor()
	slack, err := os.ReadFile("/proc/" + id + "/timerslack_ns")
	if err != nil {
		t.Logf("slack may neither be seen nor set here: %v", err) // CAP_SYS_NICE
		return
	}
	if got := strings.TrimSpace(string(slack)); got != monitorSlack {
		t.Errorf("slack of thread %s: %s", id, got)
	}
}
