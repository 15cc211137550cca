package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"agentstream/internal/load"
)

// benchServer is a dev server in a process of its own, so that its CPU time and its memory are its own.
type benchServer struct {
	url, nats string
	probe     load.Probe
	cmd       *exec.Cmd
	folder    string
	said      *tailBuffer
	ended     chan struct{}
	err       error // set before ended is closed
}

// startBenchServer starts program, or this binary when it is "", and returns when it serves.
func startBenchServer(ctx context.Context, program string, sdk bool) (_ *benchServer, err error) {
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("start a dev server: %w", err)
		}
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, fmt.Errorf("start a dev server: %w", err)
	}
	s := &benchServer{url: "http://" + addrs[0], said: &tailBuffer{}, ended: make(chan struct{})}
	if s.folder, err = os.MkdirTemp("", "agentstream-bench"); err != nil {
		return nil, fmt.Errorf("start a dev server: %w", err)
	}
	args := []string{"--level", "warn", "dev", "--no-demo", "--data", s.folder, "--listen", addrs[0], "--admin-listen", addrs[1]}
	if sdk {
		args = append(args, "--nats-listen", addrs[2])
		s.nats = "nats://" + addrs[2]
	}
	s.cmd = exec.Command(program, args...)
	// What is set for somebody else's server is not meant for this one.
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AGENTSTREAM_") })
	s.cmd.Stderr = s.said
	endWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a dev server: %w", err), os.RemoveAll(s.folder))
	}
	go func() { s.err = s.cmd.Wait(); close(s.ended) }()
	s.probe = load.OfMetrics("http://" + addrs[1] + "/metrics")
	if runtime.GOOS == "linux" {
		s.probe = load.OfProcess(s.cmd.Process.Pid)
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// ready waits until the server serves requests, for half a minute.
func (s *benchServer) ready(ctx context.Context) error {
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
		case <-s.ended:
			return fmt.Errorf("the dev server ended: %v: %s", s.err, s.said)
		case <-ctx.Done():
			return fmt.Errorf("the dev server does not serve: %w: %s", context.Cause(ctx), s.said)
		}
	}
}

// stop asks the server to end, waits for it, and removes what it has stored.
func (s *benchServer) stop() error {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	var err error
	select {
	case <-s.ended:
	case <-patience.C:
		_ = s.cmd.Process.Kill()
		<-s.ended
		err = errors.New("the dev server did not end by itself")
	}
	return errors.Join(err, os.RemoveAll(s.folder))
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
