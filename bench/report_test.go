package bench

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// section is a comparison with what it gave.
type section struct {
	*comparison
	outcomes []outcome
}

// metrics gives a benchmark its figures: the medians, and ours to each bare one.
func (s section) metrics(b *testing.B) {
	for u, unit := range s.units {
		ours := s.outcomes[0].figures[u]
		for i, o := range s.outcomes {
			b.ReportMetric(median(o.figures[u]), o.metric+"_"+unit)
			if i >= len(s.own) {
				b.ReportMetric(median(ratios(ours, o.figures[u])), "x_"+o.metric+"_"+strings.TrimSuffix(unit, "_ms"))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // the time of all rounds together says nothing
}

// print writes the section's table.
func (s section) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", s.title)
	for u, unit := range s.units {
		cpu := "CPU µs/ev c+s"
		if u > 0 {
			cpu = ""
		}
		l := fmt.Sprintf("  %-62s %10s  %-19s %12s  %15s", strings.ReplaceAll(unit, "_", ", "), "median", "min – max",
			"ours ÷ this", cpu)
		fmt.Fprintln(w, strings.TrimRight(l, " "))
		for i, o := range s.outcomes {
			f := o.figures[u]
			ratio := ""
			if i > 0 {
				ratio = fmt.Sprintf("%.2f", median(ratios(s.outcomes[0].figures[u], f)))
			}
			cpu := ""
			if u == 0 { // the same run gave all units
				cpu = fmt.Sprintf("%.1f + %.1f", median(o.own), median(o.server))
			}
			l := fmt.Sprintf("  %-62s %10s  %-19s %12s  %15s", o.name, number3(median(f)),
				number3(slices.Min(f))+" – "+number3(slices.Max(f)), ratio, cpu)
			fmt.Fprintln(w, strings.TrimRight(l, " "))
		}
	}
	for _, o := range s.outcomes {
		if len(o.notes) > 0 {
			fmt.Fprintf(w, "  (%s, last round: %s)\n", o.metric, o.notes[len(o.notes)-1])
		}
	}
}

// machine says what the figures were taken on.
func machine(w io.Writer, rounds int, loadBefore string, sections []section) {
	var others []float64
	for _, s := range sections {
		for _, o := range s.outcomes {
			others = append(others, o.others...)
		}
	}
	fmt.Fprintf(w, "\nmachine: %d cores of %s, %s, %s %s/%s, store on %s\n", runtime.NumCPU(),
		procField("/proc/cpuinfo", "model name"),
		installed(), kernel(), runtime.GOOS, runtime.GOARCH, filesystem(os.TempDir()))
	fmt.Fprintf(w, "%s, nats-server %s, nats.go %s; server in its own process, TCP loopback, file store, default sync\n",
		runtime.Version(), server.VERSION, nats.Version)
	fmt.Fprintf(w, "%d rounds in turns after a warm-up; events of 240–300 bytes; other processes took %.0f %% of the CPU (median; at most %.0f %%); load before %s, after %s\n",
		rounds, 100*median(others), 100*slices.Max(others), loadBefore, load())
	fmt.Fprintln(w, "ours ÷ this: above 1 we are faster for ev/s, slower for ms; c+s: this process (clients, edge, publishers) + NATS server")
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}

func installed() string {
	kb, _, _ := strings.Cut(procField("/proc/meminfo", "MemTotal"), " ")
	n, err := strconv.Atoi(kb)
	if err != nil {
		return "unknown memory"
	}
	return fmt.Sprintf("%.0f GiB", float64(n)/(1<<20))
}

func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "kernel " + strings.TrimSpace(string(b))
}

func procField(file, name string) string {
	b, _ := os.ReadFile(file)
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown " + name
}

// filesystem is the type of the file system that a folder lies on.
func filesystem(dir string) string {
	b, _ := os.ReadFile("/proc/mounts")
	kind, longest := "unknown", 0
	for l := range strings.Lines(string(b)) {
		f := strings.Fields(l)
		if len(f) > 2 && len(f[1]) >= longest && (f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/")) {
			kind, longest = f[2], len(f[1])
		}
	}
	return kind
}

// number3 writes a figure with what can be told of it.
func number3(v float64) string {
	switch {
	case v >= 100:
		return thousands(int(v + 0.5))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
