package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// sample is what the processes have taken until then.
type sample struct {
	at  time.Time
	cpu map[string]float64 // seconds
	rss map[string]float64 // MiB
}

// sampler watches the processes of a target from outside while the harness loads it.
type sampler struct {
	state   string         // folder in which the target names its processes
	apart   map[string]int // further processes, with all below them
	metrics string         // address that serves the persister's lag
	samples []sample
	lag     float64
}

const sampleEvery, lagEvery = 100 * time.Millisecond, time.Second

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	tick, ask := time.NewTicker(sampleEvery), time.NewTicker(lagEvery)
	defer tick.Stop()
	defer ask.Stop()
	client := &http.Client{Timeout: lagEvery, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var pids map[string]int
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask.C:
			if pids != nil {
				s.lag = max(s.lag, lagOf(ctx, client, s.metrics))
			}
		case <-tick.C:
			if pids == nil {
				pids = s.pids()
			}
			if pids != nil {
				s.samples = append(s.samples, takeSample(pids))
			}
		}
	}
}

// pids is nil until the target has started.
func (s *sampler) pids() map[string]int {
	b, err := os.ReadFile(filepath.Join(s.state, pidsFile))
	if err != nil {
		return nil
	}
	var pids map[string]int
	if json.Unmarshal(b, &pids) != nil {
		return nil
	}
	for name, pid := range s.apart {
		pids[name] = pid
	}
	return pids
}

// takeSample returns what the processes use now.
func takeSample(pids map[string]int) sample {
	s := sample{at: time.Now(), cpu: map[string]float64{}, rss: map[string]float64{}}
	for name, root := range pids {
		for i, pid := range tree(root) {
			s.cpu[name] += cpuOf(pid, i == 0)
			s.rss[name] += rssOf(pid)
		}
	}
	return s
}

// beforeEnd is how long before the last sample the harness' timed part may have ended: it waits for
// what is under way. Before the timed part comes a warm-up; what comes before that, clients that
// connect, is no load and must stay outside.
const beforeEnd = 3 * time.Second

// busiest returns the cores that each process took in that of the last windows of that length in which
// all of them together took most, and the most memory of each at any time.
func (s *sampler) busiest(window time.Duration) (cores, peakMiB map[string]float64) {
	cores, peakMiB = map[string]float64{}, map[string]float64{}
	most, last := 0.0, 0
	for _, from := range s.samples {
		for name, v := range from.rss {
			peakMiB[name] = max(peakMiB[name], v)
		}
		for last < len(s.samples) && s.samples[last].at.Sub(from.at) < window {
			last++
		}
		end := s.samples[len(s.samples)-1].at
		if window <= 0 || last == len(s.samples) || end.Sub(from.at) > window+beforeEnd {
			continue
		}
		to := s.samples[last]
		took, sum := map[string]float64{}, 0.0
		for name := range to.cpu {
			took[name] = (to.cpu[name] - from.cpu[name]) / to.at.Sub(from.at).Seconds()
			sum += took[name]
		}
		if sum > most {
			most, cores = sum, took
		}
	}
	return cores, peakMiB
}

// used is CPU time in seconds: of the whole machine, and of this process and all that it has started.
type used struct{ machine, ours, possible float64 }

// busy reads what has been used until now. Children count when they have ended, but for PostgreSQL, which stays.
func (r *referee) busy() (u used) {
	u.ours = cpuOf(os.Getpid(), true)
	if r.postgres != nil {
		for _, pid := range tree(r.postgres.proc.PID()) {
			u.ours += cpuOf(pid, true)
		}
	}
	b, _ := os.ReadFile("/proc/stat")
	text, _, _ := strings.Cut(string(b), "\n")
	for i, v := range strings.Fields(text) {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || i > 8 { // a guest's time is part of the user's
			continue
		}
		u.possible += n / userHZ
		if i != 4 && i != 5 { // idle, and waiting for a disk
			u.machine += n / userHZ
		}
	}
	return u
}

// others returns the share of the machine that other processes took since then; 0 where nothing can be read.
func (u used) others(since used) float64 {
	possible := u.possible - since.possible
	if possible <= 0 {
		return 0
	}
	return max(0, u.machine-since.machine-u.ours+since.ours) / possible
}

// lagOf adds up the packs that wait in all streams; 0 when nobody answers.
func lagOf(ctx context.Context, client *http.Client, addr string) float64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	return sumOf(string(b), "agentstream_persist_lag_messages")
}

// sumOf adds the values of a metric over its labels.
func sumOf(exposition, name string) (sum float64) {
	for text := range strings.Lines(exposition) {
		rest, ok := strings.CutPrefix(text, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}

// tree is a process and all below it, itself first.
func tree(pid int) []int {
	list := []int{pid}
	tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	for _, t := range tasks {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + t.Name() + "/children")
		for _, f := range strings.Fields(string(b)) {
			if c, err := strconv.Atoi(f); err == nil {
				list = append(list, tree(c)...)
			}
		}
	}
	return list
}

// userHZ is the unit of proc(5), which is 100 a second wherever Go runs on Linux.
const userHZ = 100

// cpuOf is user and system time in seconds, with that of children that have ended where asked; 0
// where there is no such process or no proc(5).
func cpuOf(pid int, ended bool) float64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	text := string(b)
	// The name in parentheses may hold spaces. utime, stime, cutime and cstime are the 12th to the
	// 15th field behind it.
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 15 {
		return 0
	}
	to := 13
	if ended {
		to = 15
	}
	sum := 0.0
	for _, v := range f[11:to] {
		n, _ := strconv.ParseFloat(v, 64)
		sum += n / userHZ
	}
	return sum
}

// rssOf is resident memory in MiB.
func rssOf(pid int) float64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseFloat(f[1], 64)
	return n * float64(os.Getpagesize()) / (1 << 20)
}
