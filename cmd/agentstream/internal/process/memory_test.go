package process

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	rtmetrics "runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/cmd/agentstream/internal/clitest"
)

// heldBack is what a test holds on to. Package-level, so that no compiler sees that it is not used.
var heldBack [][]byte

// rss is the resident set of this process, in bytes.
func rss(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("NOT TESTED: resident memory is not known here: %v", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// none is a process without streams.
func none() int64 { return 0 }

// kept runs a keeper until the test ends, and returns what it tells.
func kept(t *testing.T) <-chan int64 {
	t.Helper()
	returned := make(chan int64, 100)
	k := newMemoryKeeper(memoryHooks{Returned: func(n int64) { returned <- n }}, none, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return returned
}

// child reports whether this process is to run the test. Otherwise it has been run in a process of its own,
// with env, since the keeper owns what all tests of a process share.
func child(t *testing.T, env ...string) bool {
	t.Helper()
	const mark = "AGENTSTREAM_TEST_CHILD"
	if os.Getenv(mark) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), append(env, mark+"=1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go:") {
			t.Log(strings.TrimSpace(line))
		}
	}
	return false
}

// hold takes 250 MiB in blocks as the buffers of connections have, and touches each page.
func hold() {
	for range 4000 {
		b := make([]byte, 64<<10)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		heldBack = append(heldBack, b)
	}
}

// A storm of connections leaves nothing behind: its memory is the system's again. TestWhenMemoryIsGivenBack
// shows when: within three seconds.
func TestMemoryIsGivenBack(t *testing.T) {
	if !child(t, "GOGC=", "GOMEMLIMIT=") {
		return
	}
	returned := kept(t)
	hold()
	storm := rss(t)
	heldBack = nil
	select {
	case n := <-returned:
		now := rss(t)
		t.Logf("resident: %d MiB in the storm, %d MiB after it; %d MiB were given back", storm>>20, now>>20, n>>20)
		if n < 200<<20 || now > storm-(200<<20) {
			t.Error("not enough")
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing was given back")
	}
	select {
	case n := <-returned:
		t.Errorf("%d bytes were given back again, and nothing was done meanwhile", n)
	case <-time.After(3 * betweenGives / 2):
	}
}

// collectionsOf allocates 256 MiB of short-lived garbage and says how often the heap was collected.
func collectionsOf() uint64 {
	count := func() uint64 {
		s := []rtmetrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
		rtmetrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := count()
	for i := range 1 << 16 {
		b := make([]byte, 4<<10)
		b[i%len(b)] = 1
		heldBack = append(heldBack[:0], b)
	}
	heldBack = nil
	return count() - before
}

// With the keeper a small heap is collected a few times where it was collected dozens of times, and
// when it ends all is as it was.
func TestHeapBreathes(t *testing.T) {
	if !child(t, "GOGC=", "GOMEMLIMIT=") {
		return
	}
	runtime.GC()
	without := collectionsOf()
	ctx, cancel := context.WithCancel(t.Context())
	k := newMemoryKeeper(memoryHooks{}, none, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- k.run(ctx) }()
	gogc := func() uint64 {
		s := []rtmetrics.Sample{{Name: "/gc/gogc:percent"}}
		rtmetrics.Read(s)
		return s[0].Value.Uint64()
	}
	clitest.WaitFor(t, func() bool { return gogc() > 200 })
	with := collectionsOf()
	t.Logf("256 MiB of garbage: %d collections without the keeper, %d with it, at GOGC %d", without, with, gogc())
	if with*4 > without || with > 10 {
		t.Error("the heap does not breathe")
	}

	// A heap that grows is at Go's own pace again before it can grow tenfold.
	for range 128 {
		heldBack = append(heldBack, make([]byte, 1<<20))
	}
	runtime.GC()
	clitest.WaitFor(t, func() bool { return gogc() == 100 })
	heldBack = nil
	runtime.GC()
	clitest.WaitFor(t, func() bool { return gogc() > 200 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if now := gogc(); now != 100 {
		t.Errorf("GOGC is %d after the keeper", now)
	}
}

// What the operator has set stands.
func TestMemoryOfTheOperator(t *testing.T) {
	if !child(t, "GOGC=50", "GOMEMLIMIT=") {
		return
	}
	returned := kept(t)
	hold()
	heldBack = nil
	select { // and memory is given back all the same
	case <-returned:
	case <-time.After(10 * time.Second):
		t.Error("nothing was given back")
	}
	if was := debug.SetGCPercent(50); was != 50 {
		t.Errorf("GOGC was 50 and is %d", was)
	}
}

// GOGC=off asks for no collection at all.
func TestMemoryWithoutCollections(t *testing.T) {
	if !child(t, "GOGC=off", "GOMEMLIMIT=") {
		return
	}
	returned := kept(t)
	if n := collectionsOf(); n != 0 {
		t.Errorf("%d collections", n)
	}
	select {
	case <-returned:
		t.Error("the heap was collected")
	case <-time.After(4 * time.Second):
	}
}

// A heap that may not breathe as far as GOMEMLIMIT allows is collected earlier than GOGC says.
func TestMemoryLimitStands(t *testing.T) {
	if !child(t, "GOGC=", "GOMEMLIMIT=32MiB") {
		return
	}
	kept(t)
	runtime.GC()
	collectionsOf()
	if s := readMemory(); s.held > 40<<20 {
		t.Errorf("%d MiB are held", s.held>>20)
	}
}

func TestPercentOfHeap(t *testing.T) {
	for _, tt := range []struct {
		base int64 // MiB
		want int
	}{{0, 1600}, {1, 1600}, {4, 1600}, {8, 800}, {16, 400}, {50, 128}, {64, 100}, {65, 100}, {10000, 100}} {
		if got := percentFor(tt.base<<20, heapRoom); got != tt.want {
			t.Errorf("%d MiB: %d, want %d", tt.base, got, tt.want)
		}
	}
}

// A heap that takes long to collect is collected less often, as far as half of the limit.
func TestRoomByCost(t *testing.T) {
	for _, tt := range []struct {
		base, bound int64 // MiB
		cost        time.Duration
		want        int
	}{
		{50, 1 << 30, 8 * time.Millisecond, 128},
		{50, 1 << 30, 32 * time.Millisecond, 250}, // 125 MiB for 32 ms
		{128, 1 << 30, 120 * time.Millisecond, 200},
		{128, 700, 120 * time.Millisecond, 173}, // as far as half of the limit
		{128, 400, 120 * time.Millisecond, 100},
		{1000, 1 << 30, 500 * time.Millisecond, 100},
	} {
		got := 0
		k := &memoryKeeper{log: slog.New(slog.DiscardHandler), breathe: true, bound: tt.bound << 20,
			setPercent: func(n int) int { got = n; return 100 }}
		s := memoryState{base: tt.base << 20}
		for range 10 { // the first costs are those of another heap
			s.cycles += 2
			s.collecting += 2 * tt.cost
			k.adapt(s)
		}
		if d := got - tt.want; d*10 > tt.want || d*-10 > tt.want { // it is not set anew for less
			t.Errorf("%d MiB, %d allowed, %v for a collection: GOGC %d, want %d", tt.base, tt.bound, tt.cost, got, tt.want)
		}
	}
}

// A soft limit makes room for what is in use, and comes back to itself.
func TestSoftLimit(t *testing.T) {
	set := []int64{}
	k := &memoryKeeper{log: slog.New(slog.DiscardHandler), limit: 300 << 20,
		setLimit: func(n int64) int64 { set = append(set, n>>20); return 0 }}
	for _, base := range []int64{10, 188, 200, 210, 240, 400, 390, 100, 50} { // MiB
		k.adapt(memoryState{base: base << 20})
	}
	if want := []int64{364, 564, 300}; !slices.Equal(set, want) {
		t.Errorf("limits were set to %d MiB, want %d", set, want)
	}
	k.adapt(memoryState{base: 400 << 20})
	k.restore()
	if want := []int64{364, 564, 300, 564, 300}; !slices.Equal(set, want) {
		t.Errorf("limits were set to %d MiB, want %d", set, want)
	}
	hard := &memoryKeeper{setLimit: func(int64) int64 { t.Error("a limit was changed that is not ours"); return 0 }}
	hard.adapt(memoryState{base: 400 << 20})
	hard.restore()
}

// When memory is given back: after a second of quiet, when something was done, when there is
// something, and not more often than costs one percent.
func TestWhenMemoryIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memoryState{base: 10 << 20, held: 100 << 20}
		given, cost, ended := 0, time.Millisecond, int64(0)
		k := &memoryKeeper{
			log: slog.New(slog.DiscardHandler), read: func() memoryState { s.garbage = s.allocated + ended*streamBytes; return s },
			giveBack: func() { given++; time.Sleep(cost); s.held = 40 << 20 },
		}
		ticks := func(n int, alloc int64) int {
			before := given
			for range n {
				time.Sleep(keeperTick)
				s.allocated += alloc
				k.tick(time.Now())
			}
			return given - before
		}
		if n := ticks(20, 0); n != 0 {
			t.Errorf("nothing was done, and memory was given back %d times", n)
		}
		if n := ticks(20, 10<<20); n != 0 {
			t.Errorf("under load memory was given back %d times", n)
		}
		if n := ticks(1, 0); n != 0 {
			t.Error("one quiet tick is not idle")
		}
		if n := ticks(1, 0); n != 1 || 3*keeperTick > 3*time.Second { // it may have begun just after a tick
			t.Errorf("idle: %d, after two ticks of %v", n, keeperTick)
		}
		if n := ticks(100, 0); n != 0 {
			t.Errorf("idle, and nothing done: %d times", n)
		}
		ended += 200
		if n := ticks(20, 0); n != 1 {
			t.Errorf("200 streams have ended: %d", n)
		}
		cost = time.Second
		ticks(1, 10<<20)
		if n := ticks(2, 0); n != 1 {
			t.Errorf("after more work: %d", n)
		}
		ticks(1, 10<<20)
		if n := ticks(190, 0); n != 0 {
			t.Errorf("a second of work again within %v: %d times", 100*time.Second, n)
		}
		if n := ticks(20, 0); n != 1 {
			t.Errorf("then: %d", n)
		}
		cost = time.Millisecond
		ticks(250, 0)
		ticks(1, 10<<20)
		s.held = 20 << 20
		if n := ticks(10, 0); n != 0 {
			t.Errorf("a small process: %d", n)
		}
	})
}
