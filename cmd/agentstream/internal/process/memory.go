package process

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	rtmetrics "runtime/metrics"
	"sync/atomic"
	"time"
)

// MemoryFlags say how much memory the process may take, and who looks after it.
type MemoryFlags struct {
	Memory       string `help:"Memory that the process keeps to, about: 400MiB, 2GiB, off. Default: GOMEMLIMIT, or nine tenths of what the container may have; dev: a twelfth of the machine's at most, within 400MiB and 2GiB." env:"AGENTSTREAM_MEMORY" placeholder:"SIZE"`
	MemoryKeeper bool   `name:"memory-keeper" help:"Let a small heap grow before it is collected, and give memory back when there is nothing to do. GOGC and GOMEMLIMIT are respected." default:"true" negatable:"" env:"AGENTSTREAM_MEMORY_KEEPER"`
}

// AddKeeper adds the memory keeper of a process with the budget b, unless it is off, to the last stage.
func (f *MemoryFlags) AddKeeper(stages [][]Part, m *Metrics, b Budget, log *slog.Logger) {
	if !f.MemoryKeeper {
		return
	}
	k := newMemoryKeeper(m.memoryHooks(), m.ended.Load, log)
	if b.soft {
		k.limit = b.heap
	}
	last := len(stages) - 1
	stages[last] = append(stages[last], Part{"memory", k.run})
}

// Bounds of the keeper.
const (
	// heapRoom is what is allocated between two collections at least. By default Go collects when
	// the heap has doubled: with the ten megabytes that a node holds, many times a second under load.
	heapRoom = 64 << 20 // bytes
	// costRoom is what is allocated for each microsecond of CPU that a collection takes, as far as mostRoom and half of
	// the limit allow. A heap of many small objects, as ten thousand watched runs make it, takes ten times as long to
	// collect as one of the same size that is made of bodies.
	costRoom = 4 << 10
	mostRoom = 256 << 20
	// maxPercent is where GOGC ends for the smallest heaps.
	maxPercent = 1600

	keeperTick   = 500 * time.Millisecond
	idleTicks    = 2               // so many quiet ticks make a process idle
	idleAlloc    = 512 << 10       // bytes allocated in a quiet tick at most
	worthGarbage = 4 << 20         // bytes that are garbage, as far as one can tell
	streamBytes  = 32 << 10        // that the end of a stream leaves behind; it allocates hardly anything
	worthHeld    = 24 << 20        // bytes below which a process is left alone
	betweenGives = 3 * time.Second // at least
	giveShare    = 100             // and so many times what the last time took: one percent of a core
)

// memoryHooks are called with what the keeper does; nil ones are not called.
type memoryHooks struct {
	Returned func(bytes int64) // memory was given back to the system
}

// memoryState is what the runtime reports of itself; sizes are in bytes.
type memoryState struct {
	base      int64 // what GOGC is a percentage of: live heap, stacks, globals
	held      int64 // mapped and not given back
	garbage   int64 // that there was since the process began, at most: allocated, and left by streams
	allocated int64 // since the process began

	cycles     int64         // collections since the process began
	collecting time.Duration // of CPU, that they took
}

// memoryKeeper sets GOGC by the size of the heap, so that collections are rare while it is small, and
// collects when the process has become idle, so that what a storm of connections needed is the
// system's again. There is one in a process: it owns GOGC while it runs.
type memoryKeeper struct {
	hooks memoryHooks
	log   *slog.Logger

	read       func() memoryState
	setPercent func(int) int
	giveBack   func()
	breathe    bool // GOGC is ours to set

	limit    int64 // of the runtime's memory, when it is soft; 0: it is not
	setLimit func(int64) int64
	lifted   int64 // limit that is set; 0: limit

	bound int64         // that the runtime keeps to; MaxInt64: none
	cost  time.Duration // of CPU, of a collection: a mean in which the last counts for half
	known memoryState   // when cost was found

	percent int // that is set; 0: the runtime's
	before  memoryState
	quiet   int       // ticks
	given   int64     // garbage at the last time
	next    time.Time // not to be given back before
}

// newMemoryKeeper makes a keeper. ended counts streams that have ended.
func newMemoryKeeper(hooks memoryHooks, ended func() int64, log *slog.Logger) *memoryKeeper {
	read := func() memoryState {
		s := readMemory()
		s.garbage = s.allocated + ended()*streamBytes
		return s
	}
	now := read()
	return &memoryKeeper{
		hooks: hooks, log: log, read: read, setPercent: debug.SetGCPercent, giveBack: giveMemoryBack,
		breathe: os.Getenv("GOGC") == "", before: now, given: now.garbage, setLimit: debug.SetMemoryLimit,
		bound: debug.SetMemoryLimit(-1), known: now,
	}
}

// readMemory takes about a microsecond and stops nothing.
func readMemory() memoryState {
	s := []rtmetrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	rtmetrics.Read(s)
	at := func(i int) int64 { return int64(s[i].Value.Uint64()) }
	return memoryState{base: at(0) + at(1) + at(2), held: at(3) - at(4), allocated: at(5), cycles: at(6),
		collecting: time.Duration(s[7].Value.Float64() * float64(time.Second))}
}

// giveMemoryBack collects twice, because a sync.Pool lets go of what is in it at the second time.
func giveMemoryBack() {
	runtime.GC()
	debug.FreeOSMemory()
}

// run keeps until ctx ends, and leaves GOGC as it was. With GOGC=off it does nothing.
func (k *memoryKeeper) run(ctx context.Context) error {
	if os.Getenv("GOGC") == "off" {
		<-ctx.Done()
		return nil
	}
	collected, stop := collections()
	defer stop()
	tick := time.NewTicker(keeperTick)
	defer tick.Stop()
	k.adapt(k.read())
	defer k.restore()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-collected:
			k.adapt(k.read())
		case now := <-tick.C:
			k.tick(now)
		}
	}
}

// adapt sets GOGC after a collection. The runtime keeps to GOMEMLIMIT whatever GOGC is.
func (k *memoryKeeper) adapt(s memoryState) {
	k.lift(s)
	if !k.breathe {
		return
	}
	want := percentFor(s.base, k.room(s))
	if d := want - k.percent; want != k.percent &&
		(want == 100 || k.percent == 0 || d*10 > k.percent || d*-10 > k.percent) {
		if was := k.setPercent(want); k.percent == 0 {
			k.log.Debug("memory: GOGC follows the heap", "was", was, "percent", want)
		}
		k.percent = want
	}
}

// lift keeps a soft limit so far above what is in use that heapRoom can be allocated before the next collection. Near
// the limit a process does nothing but collect, which is right only where the system would end it.
func (k *memoryKeeper) lift(s memoryState) {
	if k.limit == 0 {
		return
	}
	was, want := max(k.limit, k.lifted), max(k.limit, s.base+s.base/4+heapRoom)
	if d := want - was; d != 0 && (want == k.limit || d*10 > was || d*-10 > was) {
		k.log.Debug("memory: more is in use than the limit has room for", "used", s.base, "limit", want)
		k.setLimit(want)
		k.lifted = want
	}
}

func (k *memoryKeeper) restore() {
	if k.lifted > k.limit {
		k.setLimit(k.limit)
	}
	if k.percent != 0 {
		k.setPercent(100)
	}
}

// room returns how much is to be allocated before the next collection, by what the last ones took.
func (k *memoryKeeper) room(s memoryState) int64 {
	if n := s.cycles - k.known.cycles; n > 0 {
		k.cost = (k.cost + (s.collecting-k.known.collecting)/time.Duration(n)) / 2
		k.known = s
	}
	return max(heapRoom, min(k.cost.Microseconds()*costRoom, mostRoom, k.bound/2-s.base))
}

// percentFor returns the GOGC at which room is allocated before the next collection; never below the runtime's own 100.
func percentFor(base, room int64) int {
	return int(min(max(100*room/max(base, 1), 100), maxPercent))
}

// tick returns memory to the system when the process has been idle for a while and something was done before.
func (k *memoryKeeper) tick(now time.Time) {
	s := k.read()
	k.quiet++
	if s.allocated-k.before.allocated > idleAlloc {
		k.quiet = 0
	}
	k.before = s
	if k.quiet < idleTicks || s.garbage-k.given < worthGarbage || s.held < worthHeld || now.Before(k.next) {
		return
	}
	begun := time.Now()
	k.giveBack()
	took := time.Since(begun)
	k.next = now.Add(max(betweenGives, giveShare*took))
	after := k.read()
	k.given, k.before = after.garbage, after
	if k.hooks.Returned != nil {
		k.hooks.Returned(max(s.held-after.held, 0))
	}
	k.log.Debug("memory: given back", "held", s.held, "now", after.held, "took", took)
}

// sentinel is garbage from the beginning; its finalizer runs after each collection.
type sentinel struct{ self *sentinel } // a pointer keeps it from sharing a block with others

// collections reports each collection of the process, until stop is called. Ticks would be too late:
// a heap that grows tenfold between two of them would be left to grow tenfold again.
func collections() (told <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	var stopped atomic.Bool
	var again func(*sentinel)
	again = func(s *sentinel) {
		if stopped.Load() {
			return
		}
		select {
		case ch <- struct{}{}:
		default: // it has not been looked at since the last one
		}
		runtime.SetFinalizer(s, again)
	}
	runtime.SetFinalizer(&sentinel{}, again)
	return ch, func() { stopped.Store(true) }
}
