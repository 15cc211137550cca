package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/schema"
)

// What is lost, doubled or out of order must become an error, or the figures would be of less work.

func TestIDCounter(t *testing.T) {
	stream := func(ids ...int) (b []byte) {
		for _, id := range ids {
			b = fmt.Appendf(b, "event: text.delta\ndata: {\"text\":\"id: 9\"}\nid: %d\n\n", id)
		}
		return b
	}
	for _, ids := range [][]int{{2}, {1, 3}, {1, 1}, {1, 2, 1}} {
		var c idCounter
		if c.add(stream(ids...)); c.err == nil {
			t.Errorf("ids %v pass", ids)
		}
	}
	whole := stream(1, 2, 3)
	for cut := range whole {
		var c idCounter
		c.add(whole[:cut])
		c.add(whole[cut:])
		if c.err != nil || c.last != 3 {
			t.Fatalf("cut at %d: %d ids, %v", cut, c.last, c.err)
		}
	}
}

func TestWatcherTakesEachEventOnceInOrder(t *testing.T) {
	for _, seqs := range [][]schema.Seq{{3}, {2, 4}, {2, 2}} {
		var left sync.WaitGroup
		x := newWatcher(3, &left)
		for _, seq := range seqs {
			x.take(line("run", seq, stamped()))
		}
		left.Wait() // an error ends the wait
		if missing([]*watcher{x}) == nil {
			t.Errorf("%v passes", seqs)
		}
	}
	var left sync.WaitGroup
	x := newWatcher(2, &left)
	x.take(line("run", 2, stamped()))
	x.take(line("run", 3, stamped()))
	left.Wait()
	x.fail(errors.New("closed at the end, as it must"))
	if err := missing([]*watcher{x}); err != nil || len(x.took) != 2 {
		t.Fatalf("%d events, %v", len(x.took), err)
	}
}

// Counts that do not match what is stored are errors.
func TestStoredCounts(t *testing.T) {
	h := newHouse(t)
	runs := h.bareRuns(2)
	if _, err := h.compareAndSet(t.Context(), &stopwatch{}, runs, 10, 5); err != nil {
		t.Fatal(err)
	}
	if err := h.hasMessages(t.Context(), runs[0].Tenant, 3); err == nil {
		t.Error("three messages pass for four")
	}
	if err := h.hasStored(t.Context(), runs, 10); err != nil {
		t.Error(err)
	}
	if err := h.hasStored(t.Context(), runs, 11); err == nil {
		t.Error("ten events pass for eleven")
	}
	if err := h.storeInOrder(t.Context(), runs[0], h.messages(packsOf(runs[0], 1, 1, false))); err == nil {
		t.Error("the bare compare-and-set compares nothing")
	}
}

// The server must not outlive a parent that is killed.
func TestServerEndsWithItsInput(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serverEnv+"="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(strings.TrimSpace(url))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	stdin.Close() // what the kernel does when the parent is gone
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("the server goes on")
	}
}

// The writer of an open loop does not wait for anyone.
func TestOpenLoopKeepsItsPace(t *testing.T) {
	const rate, events = 1000, 200
	began, calls := time.Now(), 0
	late, err := openLoop(rate, events, func(i int) error {
		if i != calls {
			t.Errorf("call %d is for event %d", calls, i)
		}
		calls++
		return nil
	})
	if err != nil || calls != events || len(late) != events {
		t.Fatalf("%d calls, %d times, %v", calls, len(late), err)
	}
	if took := time.Since(began); took < (events-1)*time.Second/rate {
		t.Fatalf("%d events at %d a second in %v: the clock was not waited for", events, rate, took)
	}
	if _, err := openLoop(rate, events, func(int) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Fatalf("a sender's error is %v", err)
	}
}

func TestStatistics(t *testing.T) {
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median %v", m)
	}
	if m := median([]float64{4, 1, 2, 9}); m != 3 {
		t.Errorf("median of an even number %v", m)
	}
	times := make([]time.Duration, 100)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	for p, want := range map[float64]time.Duration{50: 50, 99: 99, 100: 100, 0.1: 1} {
		if got := percentile(times, p); got != want {
			t.Errorf("p%v is %v, not %v", p, got, want)
		}
	}
	if r := ratios([]float64{10, 30}, []float64{5, 10}); r[0] != 2 || r[1] != 3 {
		t.Errorf("ratios %v", r)
	}
	if n := thousands(1234567) + " " + thousands(100); n != "1,234,567 100" {
		t.Error(n)
	}
	if cpuOf(os.Getpid()) > 0 && cpuOfAll() < cpuOf(os.Getpid()) {
		t.Error("the machine used less than this process")
	}
	if !bytes.Contains(line("r", 2, stamped()), []byte(stampField)) {
		t.Error("no time in a stamped event")
	}
}
