package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Child is a process that was started here.
type Child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended; then err says how
	err  error
}

// Start starts a process and writes its output to out. Errors call it by name.
func Start(name string, out io.Writer, cmd *exec.Cmd) (*Child, error) {
	cmd.Stdout, cmd.Stderr = out, out
	EndWithParent(cmd)
	c := &Child{name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends. This goroutine keeps its
		// thread for as long as the child lives.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// Name returns what errors call the process.
func (c *Child) Name() string { return c.name }

// PID returns the number of the process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns how the process ended: nil for status 0. It may be called when Done is closed.
func (c *Child) Err() error { return c.err }

// Kill ends the process at once and does not wait for its end.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() } // it may have ended

// ErrKilled reports that a process did not end by itself.
var ErrKilled = errors.New("it did not end in time and was killed")

// Stop sends sig and waits until the process has ended. When that takes longer than patience, the process is killed,
// and the error is ErrKilled.
func (c *Child) Stop(sig os.Signal, patience time.Duration) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		_ = c.cmd.Process.Kill()
		<-c.done
		return fmt.Errorf("stop %s: %w", c.name, ErrKilled)
	}
}
