package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"agentstream/bench/child"
	"agentstream/bench/load"
)

// server is a dev server in a process of its own, so that its CPU time and its memory are its own.
type server struct {
	url, nats string
	probe     load.Probe
	process   *child.Child
	folder    string
	output    *tailBuffer
}

// startServer starts program, or the one that findProgram returns, and returns when it serves.
func startServer(ctx context.Context, program string, sdk bool) (_ *server, err error) {
	if program == "" {
		if program, err = findProgram(); err != nil {
			return nil, fmt.Errorf("start a dev server: %w; --agentstream names the program, --url a server that runs", err)
		}
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, fmt.Errorf("start a dev server: %w", err)
	}
	s := &server{url: "http://" + addrs[0], output: &tailBuffer{}}
	if s.folder, err = os.MkdirTemp("", "agentstream-bench"); err != nil {
		return nil, fmt.Errorf("start a dev server: %w", err)
	}
	args := []string{"--level", "warn", "dev", "--no-demo", "--data", s.folder, "--listen", addrs[0], "--admin-listen",
		addrs[1]}
	if sdk {
		args = append(args, "--nats-listen", addrs[2])
		s.nats = "nats://" + addrs[2]
	}
	cmd := exec.Command(program, args...)
	// What is set for somebody else's server is not meant for this one.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AGENTSTREAM_") })
	child.OwnGroup(cmd) // the load ends its runs before the server ends
	if s.process, err = child.Start("the dev server", s.output, cmd); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.folder))
	}
	s.probe = load.OfMetrics("http://" + addrs[1] + "/metrics")
	if runtime.GOOS == "linux" {
		s.probe = load.OfProcess(s.process.PID())
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// findProgram returns the program agentstream beside this one, or the one in PATH.
func findProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "agentstream")); err == nil {
			return path, nil
		}
	}
	return exec.LookPath("agentstream")
}

// ready waits until the server serves requests, for half a minute.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-again.C:
		case <-s.process.Done():
			return fmt.Errorf("the dev server ended: %v: %s", s.process.Err(), s.output)
		case <-ctx.Done():
			return fmt.Errorf("the dev server does not serve: %w: %s", context.Cause(ctx), s.output)
		}
	}
}

// stop asks the server to end, waits for it, and removes what it has stored.
func (s *server) stop() error {
	return errors.Join(s.process.Stop(os.Interrupt, 20*time.Second), os.RemoveAll(s.folder))
}

// freeAddrs returns addresses of this machine that nobody listened on a moment ago.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close() // all at the end, so that they differ
		addrs = append(addrs, ln.Addr().String())
	}
	return addrs, nil
}

// tailBuffer keeps the end of what was written.
type tailBuffer struct {
	mu  sync.Mutex
	end []byte
}

const tailKept = 2048

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end = append(b.end, p...)
	if over := len(b.end) - tailKept; over > 0 {
		b.end = b.end[:copy(b.end, b.end[over:])]
	}
	return len(p), nil
}

func (b *tailBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.TrimSpace(b.end))
}
