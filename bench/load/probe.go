package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage is what a server has used.
type Usage struct {
	CPU    time.Duration // user and system, since its processes began
	Memory int64         // resident, bytes, now
}

// Probe reads the use of a server. It may be called from many goroutines.
type Probe func(context.Context) (Usage, error)

// ErrProbe reports that the server's use of CPU and memory cannot be read.
var ErrProbe = errors.New("load: cannot read the server's use")

// Sum adds several probes: a server of many processes. It is nil without probes.
func Sum(probes ...Probe) Probe {
	if len(probes) == 0 {
		return nil
	}
	return func(ctx context.Context) (sum Usage, err error) {
		for _, p := range probes {
			u, err := p(ctx)
			if err != nil {
				return Usage{}, err
			}
			sum.CPU, sum.Memory = sum.CPU+u.CPU, sum.Memory+u.Memory
		}
		return sum, nil
	}
}

// clockTick is the unit of proc(5), USER_HZ, which is 100 wherever Go runs on Linux.
const clockTick = 10 * time.Millisecond

// OfProcess reads a process of this machine and its children from proc(5), in steps of 10 ms. A child
// that has ended takes what it used with it.
func OfProcess(pid int) Probe {
	return func(context.Context) (Usage, error) {
		pids, err := family(pid)
		if err != nil {
			return Usage{}, err
		}
		var sum Usage
		for _, p := range pids {
			u, err := processUsage(p)
			if err != nil && p == pid {
				return Usage{}, fmt.Errorf("%w: %w", ErrProbe, err)
			}
			sum.CPU, sum.Memory = sum.CPU+u.CPU, sum.Memory+u.Memory
		}
		return sum, nil
	}
}

// family is a process and all below it.
func family(pid int) ([]int, error) {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", out[i]))
		if err != nil {
			if i == 0 {
				return nil, fmt.Errorf("%w: %w", ErrProbe, err)
			}
			continue // it has ended meanwhile
		}
		for _, t := range tasks {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", out[i], t.Name()))
			if err != nil {
				continue // so has the thread; or the kernel does not list children
			}
			for _, f := range strings.Fields(string(text)) {
				if child, err := strconv.Atoi(f); err == nil && !slices.Contains(out, child) {
					out = append(out, child)
				}
			}
		}
	}
	return out, nil
}

func processUsage(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The name in parentheses may hold spaces. Behind it: state is 0, utime 11, stime 12, rss 21 (pages).
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 22 {
		return Usage{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	var n [3]int64
	for i, at := range []int{11, 12, 21} {
		if n[i], err = strconv.ParseInt(f[at], 10, 64); err != nil {
			return Usage{}, err
		}
	}
	return Usage{CPU: time.Duration(n[0]+n[1]) * clockTick, Memory: n[2] * int64(os.Getpagesize())}, nil
}

// OfMetrics reads process_cpu_seconds_total and process_resident_memory_bytes, which every role
// serves at /metrics of its operators' address (--admin-listen). url is the whole address.
func OfMetrics(url string) Probe {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(ctx context.Context) (Usage, error) {
		u, err := scrape(ctx, client, url)
		if err != nil {
			return Usage{}, fmt.Errorf("%w: %w", ErrProbe, err)
		}
		return u, nil
	}
}

func scrape(ctx context.Context, client *http.Client, url string) (u Usage, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return u, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return u, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return u, refusal(resp)
	}
	found := 0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || name != "process_cpu_seconds_total" && name != "process_resident_memory_bytes" {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return u, fmt.Errorf("%s: %w", name, err)
		}
		found++
		if name == "process_cpu_seconds_total" {
			u.CPU = time.Duration(v * float64(time.Second))
		} else {
			u.Memory = int64(v)
		}
	}
	if err := lines.Err(); err != nil {
		return u, err
	}
	if found != 2 {
		return u, fmt.Errorf("%s does not say process_cpu_seconds_total and process_resident_memory_bytes", url)
	}
	return u, nil
}
