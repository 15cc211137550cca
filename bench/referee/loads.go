package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"agentstream/bench/load"
)

// streamLines are lines that the harness has no publisher for: events of many runs as lines of streams that
// stay open.
func streamLines(dur time.Duration) (list []line) {
	for _, rate := range []int{2000, 5000, 10_000} {
		l := line{id: fmt.Sprintf("stream-500-%d", rate),
			what: fmt.Sprintf("500 runs × 2 watchers, %s ev/s, over a publish stream", thousands(rate)), window: dur,
			load: &load.Config{Scenario: load.ManyRuns, Rate: rate, Stream: true, Writers: 1, Duration: dur,
				Warm: 1500 * time.Millisecond},
			show: []string{"acked_s", "p50_ms", "p99_ms", "cpu_s_per_M", "harness_cores"}}
		if rate == 10_000 {
			l.refs = []reference{{target: "nats-js", args: manyRunsAt(500, 2, rate, dur)}}
			l.bars = []bar{times("cpu_s_per_M", 1.4, "nats-js"), atMost("p50_ms", 1), atMost("p99_ms", 20)}
		}
		list = append(list, l)
	}
	for _, runs := range []int{1, 64} {
		l := line{id: fmt.Sprintf("s5-stream-%d", runs),
			what: fmt.Sprintf("acknowledged publish, %d run(s), over publish streams", runs), window: dur,
			load: &load.Config{Scenario: load.Publish, Runs: runs, Batch: 1, Stream: true, Duration: dur},
			show: []string{"acked_s", "cpu_s_per_M"}}
		if runs > 1 {
			l.bars = []bar{atLeast("acked_s", 100_000)}
		}
		list = append(list, l)
	}
	return append(list, line{id: "disk", what: "100 runs, 240 bytes, a POST an event: on disk", disk: true, window: dur,
		load: &load.Config{Scenario: load.Publish, Runs: 100, Batch: 1, Duration: dur},
		show: []string{"log_bytes_per_event", "archive_bytes_per_event"}})
}

// under starts a shape, does work on it, and ends it in order, so that what it has stored lies in its files.
func (r *referee) under(ctx context.Context, k jobKey, env, serveArgs []string, work func(pid int) error) error {
	target := exec.Command(r.self, append(serveArgs, "-gentle")...)
	target.Env = env
	c, err := startChild("target", r.log(k, "target"), target)
	if err != nil {
		return err
	}
	err = awaitReady(ctx, r.ports.edge(), c.Done())
	if err == nil {
		err = work(c.PID())
	}
	if stop := c.Stop(os.Interrupt, 20*time.Second); err == nil {
		err = stop
	}
	return err
}

// measureLoad puts the project's own load on a shape.
func (r *referee) measureLoad(ctx context.Context, l line, k jobKey, env, serveArgs []string,
	state string) (m map[string]float64, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the harness does
	cfg := *l.load
	cfg.URL = "http://" + r.ports.edge()
	data := filepath.Join(state, "data")
	var log, archive float64
	if l.disk {
		// The sizes are those of closed files: an open archive has pages in its write-ahead log as well.
		err = r.under(ctx, k, env, serveArgs, func(int) error { return nil })
		if err != nil {
			return nil, err
		}
		log, archive, err = dataSizes(data)
		if err != nil {
			return nil, err
		}
	}
	err = r.under(ctx, k, env, serveArgs, func(pid int) (err error) {
		cfg.Probe = load.OfProcess(pid)
		taken := func() error { return nil }
		if l.profile {
			taken = profiling(ctx, &cfg, r.ports.admin(), r.results.profileFile(k))
		}
		res, err := load.Run(ctx, cfg)
		if err != nil {
			return err
		}
		m = metricsOf(res)
		return errors.Join(res.Err(), taken())
	})
	if err != nil || !l.disk {
		return m, err
	}
	fullLog, fullArchive, err := dataSizes(data)
	m["log_bytes_per_event"], m["archive_bytes_per_event"] = (fullLog-log)/m["acked"], (fullArchive-archive)/m["acked"]
	return m, err
}

// metricsOf returns a result under the harness' names.
func metricsOf(r *load.Result) map[string]float64 {
	return map[string]float64{"acked": float64(r.Acked), "acked_s": r.AckedPerSecond, "delivered_s": r.DeliveredPerSecond,
		"p50_ms": r.Latency.P50, "p99_ms": r.Latency.P99, "p999_ms": r.Latency.P999, "cpu_s_per_M": r.Server.PerMillion,
		"harness_cores": r.Client,
		"lost":          float64(r.Lost), "gap": float64(r.Disorder + r.Stray), "dup": float64(r.Duplicate),
		"dropped_conns": float64(r.Cut),
		"puberr":        float64(r.Refused), "notsent": float64(r.Missed)}
}

// dataSizes returns the bytes of a dev server's log and of its archive.
func dataSizes(data string) (log, archive float64, err error) {
	err = filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if in, _ := filepath.Rel(data, path); strings.HasPrefix(in, "nats"+string(filepath.Separator)) {
			log += float64(info.Size())
		} else {
			archive += float64(info.Size())
		}
		return nil
	})
	return log, archive, err
}
