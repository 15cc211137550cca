package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// child is a process that ends with this one, however this one ends (on Linux).
type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended; then err says how
	err  error
}

// startChild starts a process whose output goes to a file.
func startChild(name, log string, cmd *exec.Cmd) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	c := &child{name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends. This goroutine keeps its
		// thread for as long as the child lives.
		runtime.LockOSThread()
		defer out.Close()
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

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks with a signal, waits, and kills.
func (c *child) stop(sig os.Signal, patience time.Duration) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	select {
	case <-c.done:
	case <-time.After(patience):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	return nil
}
