package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// process is one life of a server. It does not outlive the test process.
type process struct {
	cmd  *exec.Cmd
	log  bytes.Buffer  // what it printed; complete when done is closed
	done chan struct{} // closed when the process has ended
}

// skipShort skips a test that starts a server where -short asks for tests without other processes.
func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts another process")
	}
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started := make(chan error)
	go func() {
		// This goroutine keeps its thread for as long as the server lives. Go would be free to end
		// the thread earlier, and with it, by Pdeathsig, the server. It gives the thread back, which
		// may have started others, of tests that run beside this one, before it was locked.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		close(p.done)
	}()
	return p, <-started
}

// await waits until answers returns no error, for at most half a minute.
func (p *process) await(answers func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("it ended: %s", p.log.String())
		case <-ctx.Done():
			return err
		}
	}
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
