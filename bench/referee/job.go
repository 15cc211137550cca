package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentstream/bench/child"
)

// referee runs measurements one after another.
type referee struct {
	self, harness, agentstream, natsServer string
	before                                 string // an earlier binary of the product, or ""
	lock                                   string // file; "" takes no lock
	ports                                  ports
	shapes                                 []string
	rounds                                 int
	results                                *results
	say                                    io.Writer
	postgres                               *postgres // nil until the split shape is measured
}

// patience is how long one measurement may take.
const patience = 170 * time.Second

// measureAll goes through the lines in rounds: within one, a line's targets follow each other, so that
// the machine's drift falls on all alike. A measurement that fails does not stop the others; it is
// reported at the end, and tried again the next time.
func (r *referee) measureAll(ctx context.Context, lines []line) error {
	var failed []error
	for round := 1; round <= r.rounds; round++ {
		for _, l := range lines {
			for _, target := range r.targets(l) {
				k := jobKey{Round: round, Line: l.id, Target: target}
				if r.results.has(k) {
					continue
				}
				busy := r.busy()
				rec, err := r.measure(ctx, l, k)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				rec.CPU, rec.Others = cpuModel(), r.busy().others(busy)
				if err != nil {
					rec = record{jobKey: k, Err: err.Error()}
					failed = append(failed, fmt.Errorf("round %d, %s on %s: %w", k.Round, k.Line, k.Target, err))
				}
				rec.At = time.Now().UTC()
				if err := r.results.add(rec); err != nil {
					return err
				}
				fmt.Fprintf(r.say, "%d %s %s %s\n", k.Round, k.Line, k.Target, brief(l, rec))
			}
		}
	}
	return errors.Join(failed...)
}

func (r *referee) targets(l line) (list []string) {
	for _, ref := range l.refs {
		list = append(list, ref.target)
	}
	for _, s := range r.shapes {
		// An earlier binary may have no streams to publish over, and only one process keeps everything in one folder.
		if isBefore(s) && l.load != nil && l.load.Stream || (l.disk || l.bounded) && strings.HasPrefix(s, shapeSplit) {
			continue
		}
		if s == shapeFloor && !l.single() {
			continue
		}
		list = append(list, s)
	}
	return list
}

func brief(l line, rec record) string {
	if rec.Err != "" {
		return "ERROR " + rec.Err
	}
	var parts []string
	for _, name := range l.metrics() {
		if v, ok := rec.Metrics[name]; ok {
			parts = append(parts, name+"="+figure(v))
		}
	}
	for name, v := range rec.Cores {
		parts = append(parts, name+"="+figure(v)+" cores")
	}
	slices.Sort(parts)
	if why := rec.spoilReason(); why != "" {
		parts = append(parts, "DOES NOT COUNT: "+why)
	}
	return strings.Join(parts, " ")
}

// measure takes the lock for as long as the machine must be quiet.
func (r *referee) measure(ctx context.Context, l line, k jobKey) (record, error) {
	unlock, err := takeLock(ctx, r.lock)
	if err != nil {
		return record{}, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, ref := range l.refs {
		if ref.target == k.Target {
			m, err := r.harnessRun(ctx, k, nil, slices.Concat(l.args, ref.args, []string{"-t", ref.target}))
			return record{jobKey: k, Metrics: m}, err
		}
	}
	return r.measureShape(ctx, l, k)
}

// measureShape measures the product, and its processes one by one.
func (r *referee) measureShape(ctx context.Context, l line, k jobKey) (record, error) {
	state, err := os.MkdirTemp("", "agentstream-referee-")
	if err != nil {
		return record{}, err
	}
	defer os.RemoveAll(state)
	s := &sampler{state: state, metrics: r.ports.admin(), apart: map[string]int{}}
	env := os.Environ()
	if !l.bounded {
		// what comparisons of speed use, decision 0033; an earlier binary has no bound
		env = append(env, "AGENTSTREAM_MEMORY=off")
	}
	shape, old := strings.CutSuffix(k.Target, beforeSuffix)
	agentstream := r.agentstream
	if old {
		agentstream = r.before
	}
	if shape == shapeSplit {
		dsn, err := r.database(ctx)
		if err != nil {
			return record{}, err
		}
		env = append(env, "AGENTSTREAM_POSTGRES="+dsn)
		s.apart["postgres"], s.metrics = r.postgres.proc.PID(), r.ports.persistAdmin()
	}
	serveArgs := []string{"serve", "-shape", shape, "-agentstream", agentstream, "-nats-server", r.natsServer,
		"-state", state, "-logs", r.log(k, ""), "-port", strconv.Itoa(r.ports.first),
		"-nats=" + strconv.FormatBool(l.sdk > 0 || l.nats),
		"-ingest=" + strconv.FormatBool(l.nats), "-sync=" + strconv.FormatBool(l.sync)}
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan struct{})
	go func() { s.run(sampling); close(sampled) }()
	var m map[string]float64
	switch {
	case l.sdk > 0:
		m, err = r.measureSDK(ctx, l, k, env, serveArgs)
	case l.load != nil:
		m, err = r.measureLoad(ctx, l, k, env, serveArgs, state)
	default:
		m, err = r.harnessRun(ctx, k, env, slices.Concat(l.args, r.custom(l, serveArgs)))
	}
	stop()
	<-sampled
	if err != nil {
		return record{}, err
	}
	rec := record{jobKey: k, Metrics: m, Lag: s.lag}
	rec.Cores, rec.PeakMiB = s.busiest(l.window)
	if l.sdk > 0 {
		m["cpu_s_per_M"] = (sum(rec.Cores) - rec.Cores["postgres"]) / m["acked_s"] * 1e6
	}
	return rec, nil
}

func sum(m map[string]float64) (s float64) {
	for _, v := range m {
		s += v
	}
	return s
}

// database begins PostgreSQL when it is first needed.
func (r *referee) database(ctx context.Context) (string, error) {
	if r.postgres == nil {
		p, err := startPostgres(ctx, filepath.Join(r.results.dir, "logs", "postgres.log"))
		if err != nil {
			return "", err
		}
		r.postgres = p
	}
	return r.postgres.database(ctx, "agentstream")
}

func (r *referee) log(k jobKey, process string) string {
	name := fmt.Sprintf("%s.%s.%d.%s", k.Line, k.Target, k.Round, process)
	if process != "" {
		name += ".log"
	}
	return filepath.Join(r.results.dir, "logs", name)
}

// custom is how the harness reaches the product.
func (r *referee) custom(l line, serveArgs []string) []string {
	quoted := []string{"exec", quote(r.self)}
	for _, a := range serveArgs {
		quoted = append(quoted, quote(a))
	}
	run := "http://" + r.ports.edge() + "/v1/agent/runs/r{ch}"
	args := []string{"-t", "custom"}
	pub := run + "/events"
	if l.nats {
		pub = "nats://" + r.ports.nats() + "/ingest.default.r{ch}"
		args = append(args, "-v", "js=1")
	}
	for _, v := range []string{"cmd=" + strings.Join(quoted, " "), "sse=" + run + "/stream?detail=full",
		"ws=" + run + "/stream?detail=full",
		"start=0", "pub=" + pub, "prepare=" + run} {
		args = append(args, "-v", v)
	}
	return args
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// harnessRun runs the harness once and returns its metrics.
func (r *referee) harnessRun(ctx context.Context, k jobKey, env, args []string) (map[string]float64, error) {
	out, err := os.CreateTemp("", "referee-*.jsonl")
	if err != nil {
		return nil, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	args = append([]string{"-runs", "1", "-bin", filepath.Dir(r.natsServer), "-o", out.Name()}, args...)
	cmd := exec.CommandContext(ctx, r.harness, args...)
	cmd.Env = env
	child.EndWithParent(cmd)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	said, err := cmd.CombinedOutput()
	if err := errors.Join(err, os.WriteFile(r.log(k, "harness"), said, 0o644)); err != nil {
		return nil, fmt.Errorf("harness: %w: %s", err, bytes.TrimSpace(said))
	}
	var res struct {
		Err string
		M   map[string]float64
	}
	if err := json.NewDecoder(out).Decode(&res); err != nil {
		return nil, fmt.Errorf("harness: result: %w: %s", err, bytes.TrimSpace(said))
	}
	if res.Err != "" {
		return nil, fmt.Errorf("harness: %s", res.Err)
	}
	return res.M, nil
}

// takeLock waits for the lock on a file. Child processes do not inherit it.
func takeLock(ctx context.Context, file string) (unlock func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}
