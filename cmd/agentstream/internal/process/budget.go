package process

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
)

// Bounds of what dev keeps to when no limit is set, in bytes.
const (
	leastDevMemory = 400 << 20
	mostDevMemory  = 2 << 30
)

// DevMemory returns what dev keeps to when no limit is set: a twelfth of the machine's memory, within bounds. A laptop
// has other things to do.
func DevMemory() int64 { return devMemory(os.DirFS("/")) }

// devMemory is DevMemory; root is "/". Where the machine's memory is not known it is the least.
func devMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return leastDevMemory
	}
	var kib int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil {
		return leastDevMemory
	}
	return min(max(kib<<10/12, leastDevMemory), mostDevMemory)
}

// Budget divides the memory that a process may take. All in bytes; 0 is no bound.
type Budget struct {
	whole   int64
	soft    bool  // nobody asked for it, and nothing ends a process that takes more
	heap    int64 // of Go's runtime: the rest is the program itself, what it has mapped, and what a collection is late for
	Bodies  int64 // of requests under way; 0: the edge's own default
	Pages   int64 // of history that are kept for the next request; 0: the default
	State   int64 // of runs that is kept for the next request: folds and projectors; 0: the default
	Streams int   // that may be open; 0: as many as there are descriptors for
	Log     int64 // that the embedded log may be given within LogHolds
}

// LogHolds is how long the embedded nats-server keeps what was written in memory.
const LogHolds = 10 * time.Second

// leastLog keeps the embedded log usable however little memory there is.
const leastLog = 32 << 20

// ofStream is for how many bytes of the whole there is a stream. One over HTTP/2 takes about half of it.
const ofStream = 40 << 10

func budgetOf(whole int64) Budget {
	if whole == 0 {
		return Budget{}
	}
	return Budget{whole: whole, heap: whole / 4 * 3, Bodies: min(whole/6, 1<<30), Pages: min(whole/16, 64<<20),
		State: min(whole/8, 128<<20), Log: max(whole/4, leastLog),
		Streams: int(whole / ofStream)}
}

// Keep finds how much the process may take and sets the runtime's limit, unless GOMEMLIMIT has. most bounds what was
// found by itself; 0: it does not.
func (f *MemoryFlags) Keep(most int64, log *slog.Logger) (Budget, error) {
	b, own, err := f.budget(most, memoryMax(os.DirFS("/")))
	if err != nil || b.whole == 0 {
		return b, err
	}
	if b.soft = own && most > 0 && b.whole == most && f.Memory == ""; own {
		debug.SetMemoryLimit(b.heap)
	}
	log.Info("memory: the process keeps to a limit", "bytes", b.whole, "bodies", b.Bodies)
	return b, nil
}

// budget reads the flag, else GOMEMLIMIT, else takes a part of what the system allows. own: the limit of the runtime
// is ours to set.
func (f *MemoryFlags) budget(most, system int64) (b Budget, own bool, err error) {
	env := os.Getenv("GOMEMLIMIT") != ""
	if f.Memory != "" {
		whole, err := cli.ParseSize(f.Memory)
		if err == nil && whole != 0 && whole < leastMemory {
			err = fmt.Errorf("less than %d MiB", leastMemory>>20)
		}
		if err != nil {
			return Budget{}, false, fmt.Errorf("--memory %w", err)
		}
		return budgetOf(whole), !env && whole > 0, nil
	}
	if env {
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			return budgetOf(limit), false, nil
		}
		return Budget{}, false, nil
	}
	whole := system / 10 * 9
	if most > 0 && (whole == 0 || whole > most) {
		whole = most
	}
	return budgetOf(whole), whole > 0, nil
}

// leastMemory is what a process needs to do anything.
const leastMemory = 64 << 20

// memoryMax is the least that the control groups of this process allow, 0 when there is no limit. root is "/".
func memoryMax(root fs.FS) (most int64) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		kind, group, _ := strings.Cut(rest, ":")
		folder, file := "sys/fs/cgroup", "memory.max"
		if kind == "memory" { // version 1
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if kind != "" {
			continue
		}
		for ; ; group = path.Dir(group) {
			if text, err := fs.ReadFile(root, path.Join(folder, group, file)); err == nil {
				// "max", or a number that no machine has, is no limit.
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < 1<<50 &&
					(most == 0 || n < most) {
					most = n
				}
			}
			if group == "/" || group == "." || group == "" {
				break
			}
		}
	}
	return most
}
