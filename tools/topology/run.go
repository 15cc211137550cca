package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentstream/internal/localpg"
)

// topology is the services as processes.
type topology struct {
	file   *file
	dir    string
	binary string
	ports  map[string]int // by service and port of the file
	ended  chan error     // a process that is to run on has ended

	order   []string // as they were started
	running map[string]*process

	kubelets map[string]*kubelet // of pods
	probing  sync.WaitGroup
	unprobe  context.CancelFunc
}

// process is one service.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; set before done is closed
	log  string

	mu      sync.Mutex
	stopped bool

	killed bool          // it had not ended within its grace; set by stop, as took is
	took   time.Duration // from the signal to its end
}

// start starts all services, each when what it depends on is so far, and waits until the last is healthy.
func (t *topology) start(ctx context.Context) error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	probed, unprobe := context.WithCancel(ctx)
	t.unprobe = unprobe
	for len(t.running) < len(t.file.Services) {
		before := len(t.running)
		for _, name := range keysInOrder(t.file.Services) {
			s := t.file.Services[name]
			if t.running[name] != nil || !t.may(s) {
				continue
			}
			if err := t.await(ctx, s); err != nil {
				return err
			}
			p, err := t.service(ctx, name, s)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			t.running[name], t.order = p, append(t.order, name)
			if err := t.probe(probed, name, s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if len(t.running) == before {
			return errors.New("what services depend on is not there, or is a circle")
		}
	}
	for _, name := range t.order {
		if err := t.healthy(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// keysInOrder returns the keys of m, sorted.
func keysInOrder[V any](m map[string]V) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// may reports whether everything that a service depends on has been started.
func (t *topology) may(s service) bool {
	for on := range s.DependsOn {
		if t.running[on] == nil {
			return false
		}
	}
	return true
}

// await waits for the conditions of a service.
func (t *topology) await(ctx context.Context, s service) error {
	for _, on := range keysInOrder(s.DependsOn) {
		switch s.DependsOn[on].Condition {
		case healthy:
			if err := t.healthy(ctx, on); err != nil {
				return err
			}
		case completed:
			p := t.running[on]
			select {
			case <-p.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if p.err != nil {
				return fmt.Errorf("%s: %w\n%s", on, p.err, p.output())
			}
		}
	}
	return nil
}

// healthy waits until the health check of a service passes.
func (t *topology) healthy(ctx context.Context, name string) error {
	s, p := t.file.Services[name], t.running[name]
	if s.Healthcheck == nil && t.kubelets[name] == nil {
		return nil
	}
	patience, err := s.patience()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for end := time.Now().Add(patience); ; {
		err := t.check(ctx, name, s)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-p.done:
			return fmt.Errorf("%s: %w\n%s", name, p.err, p.output())
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not healthy: %w\n%s", name, err, p.output())
		}
	}
}

// check runs the health check once.
func (t *topology) check(ctx context.Context, name string, s service) error {
	if k := t.kubelets[name]; k != nil {
		if !k.isReady() {
			return errors.New("it is not ready")
		}
		return nil
	}
	pl := &place{t: t, name: name, root: filepath.Join(t.dir, "roots", name)}
	test, err := pl.all(s.Healthcheck.Test)
	if err != nil || len(test) < 2 || test[0] != "CMD" {
		return fmt.Errorf("health check %q: %w", test, err)
	}
	switch test[1] {
	case "wget":
		resp, err := http.Get(test[len(test)-1])
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	case "/usr/bin/agentstream":
		test[1] = t.binary
	case "pg_isready":
		if err := t.mapProgram(name, test); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, test[1], test[2:]...)
	cmd.Env = t.running[name].cmd.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// mapProgram sets the path and the port of a health check that is one of PostgreSQL's programs.
func (t *topology) mapProgram(name string, test []string) error {
	programs, err := localpg.Programs(test[1])
	if err != nil {
		return err
	}
	test[1] = filepath.Join(programs, test[1])
	if i := slices.Index(test, "-p"); i > 0 {
		n, err := t.port(name, test[i+1])
		if err != nil {
			return err
		}
		test[i+1] = strconv.Itoa(n)
	}
	return nil
}

// launch starts a process whose output goes into a file.
func (t *topology) launch(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{}), log: filepath.Join(t.dir, name+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // nothing is left behind by a topology that is killed
	err = cmd.Start()
	log.Close()
	if err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if !stopped && !t.isAwaited(name) {
			t.ended <- fmt.Errorf("%s has ended: %v\n%s", name, p.err, p.output())
		}
	}()
	return p, nil
}

// isAwaited reports whether others wait for the service to end.
func (t *topology) isAwaited(name string) bool {
	for _, s := range t.file.Services {
		if s.DependsOn[name].Condition == completed {
			return true
		}
	}
	return false
}

// output is the end of what the process has printed.
func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// probe lets a kubelet probe a pod until ctx ends.
func (t *topology) probe(ctx context.Context, name string, s service) error {
	if s.pod == nil || len(s.pod.probes) == 0 {
		return nil
	}
	probes := map[string]probe{}
	for kind, p := range s.pod.probes {
		n, err := t.port(name, strconv.Itoa(p.port))
		if err != nil {
			return err
		}
		p.url = "http://127.0.0.1:" + strconv.Itoa(n) + p.HTTPGet.Path
		probes[kind] = p
	}
	k, running := &kubelet{ask: askOverHTTP, results: map[string]*probed{}}, t.running[name]
	t.kubelets[name] = k
	t.probing.Go(func() {
		if err := k.run(ctx, probes); err != nil {
			t.ended <- fmt.Errorf("%s: %w\n%s", name, err, running.output())
		}
	})
	return nil
}

// stopWithin is how long a process may take to end before it is killed, where it is no pod.
const stopWithin = 20 * time.Second

// stop ends the processes: pods at once, as their deletion does, then the others, those first that were started last.
func (t *topology) stop() {
	if t.unprobe != nil {
		t.unprobe()
	}
	t.probing.Wait()
	var pods sync.WaitGroup
	for _, name := range t.order {
		if t.file.Services[name].isPodOfChart() {
			pods.Go(func() { t.endProcess(name) })
		}
	}
	pods.Wait()
	for _, name := range slices.Backward(t.order) {
		if !t.file.Services[name].isPodOfChart() {
			t.endProcess(name)
		}
	}
}

// endProcess ends one process: a signal, and a kill when its grace is over.
func (t *topology) endProcess(name string) {
	p, s := t.running[name], t.file.Services[name]
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	by, grace := syscall.SIGTERM, stopWithin
	if s.kind() == "postgres" {
		by = syscall.SIGINT // SIGTERM waits for clients
	}
	if s.pod != nil {
		grace = s.pod.grace
	}
	begun := time.Now()
	_ = p.cmd.Process.Signal(by) // it may have ended
	select {
	case <-p.done:
	case <-time.After(grace):
		p.killed = true
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	p.took = time.Since(begun)
}

// described is one process for who asked for it.
type described struct {
	Service string         `json:"service"`
	PID     int            `json:"pid"`
	Argv    []string       `json:"argv"`
	Env     []string       `json:"env"`
	Ports   map[string]int `json:"ports"`              // by the port of the file
	Of      string         `json:"workload,omitempty"` // what it is a pod of
}

func (t *topology) describe() (out []described) {
	for _, name := range t.order {
		p := t.running[name]
		d := described{Service: name, PID: p.cmd.Process.Pid, Argv: p.cmd.Args, Env: p.cmd.Env, Ports: map[string]int{}}
		for key, n := range t.ports {
			if port, ok := strings.CutPrefix(key, name+":"); ok {
				d.Ports[port] = n
			}
		}
		if s := t.file.Services[name]; s.pod != nil {
			d.Of = s.pod.workload
		}
		out = append(out, d)
	}
	return out
}

// outcome is how a pod has ended, and what its probes said before.
type outcome struct {
	Service string            `json:"service"`
	Exit    int               `json:"exit"`
	Killed  bool              `json:"killed"` // its grace was over
	Took    float64           `json:"took_s"`
	Grace   float64           `json:"grace_s"`
	Probes  map[string]probed `json:"probes,omitempty"`
}

// outcomes describes the pods of the chart when they have ended.
func (t *topology) outcomes() (out []outcome) {
	for _, name := range t.order {
		p, s := t.running[name], t.file.Services[name]
		if s.pod == nil {
			continue
		}
		o := outcome{Service: name, Exit: p.cmd.ProcessState.ExitCode(), Killed: p.killed, Took: p.took.Seconds(),
			Grace: s.pod.grace.Seconds()}
		if k := t.kubelets[name]; k != nil {
			o.Probes = k.counts()
		}
		out = append(out, o)
	}
	return out
}
