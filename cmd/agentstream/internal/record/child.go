package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// Exit statuses of a command that could not be started, as shells have them.
const (
	StatusNotFound = 127
	StatusNoStart  = 126
)

// Child is a command that runs.
type Child struct {
	cmd     *exec.Cmd
	said    *Tail
	copied  chan struct{} // closed when its standard error is at its end
	release func()        // lets go of what it was read from
}

// End is how a command ended.
type End struct {
	Status      int       // 128 and its number for a signal
	Signal      string    // that ended it; "" none
	Interrupted string    // the last signal that it was sent through this process; "" none
	At          time.Time // when that came
	Said        string    // the last line of its standard error
}

// lastWords is how long the standard error of a command that has ended may stay open: what it has left running may hold
// it.
const lastWords = time.Second

// StartStatus returns the exit status for a command that Start could not start.
func StartStatus(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return StatusNotFound
	}
	return StatusNoStart
}

// Start starts a command with the process's own standard streams and this environment. What it writes to its standard
// error goes to stderr.
func Start(args, environ []string, stderr *os.File) (*Child, error) {
	c := &Child{cmd: exec.Command(args[0], args[1:]...), said: &Tail{}, copied: make(chan struct{})}
	c.cmd.Env, c.cmd.Stdin, c.cmd.Stdout = environ, os.Stdin, os.Stdout
	from, to, release, err := errorPipe(stderr)
	if err != nil {
		return nil, err
	}
	c.cmd.Stderr, c.release = to, release
	err = c.cmd.Start()
	_ = to.Close() // the command has its own
	if err != nil {
		release()
		return nil, err
	}
	go func() {
		defer close(c.copied)
		_, _ = io.Copy(io.MultiWriter(c.said, loose{stderr}), from) // a terminal ends with an error
	}()
	return c, nil
}

// loose is a writer whose reader may have gone: what is written to it is lost, and the command goes on.
type loose struct{ w io.Writer }

// Write writes what can be written.
func (l loose) Write(b []byte) (int, error) {
	_, _ = l.w.Write(b)
	return len(b), nil
}

// Wait passes signals on until the command has ended.
func (c *Child) Wait(signals <-chan os.Signal) End {
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	var end End
	for {
		select {
		case s := <-signals:
			if isEnding(s) {
				end.Interrupted, end.At = nameOf(s), time.Now()
			}
			if !isFromTerminal(s) {
				_ = c.cmd.Process.Signal(s) // it may have ended just now
			}
			continue
		case <-done:
		}
		break
	}
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-c.copied:
	case <-late.C:
	}
	c.release()
	end.Said = c.said.Line()
	end.Status, end.Signal = statusOf(c.cmd.ProcessState)
	return end
}

// Reason returns why a command failed that ended with a status other than 0.
func (e End) Reason() string {
	switch {
	case e.Said != "":
		return e.Said
	case e.Signal != "":
		return "killed by " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// Signals returns the signals that are passed on to a command, and how to stop their coming. Those that this process
// was started to ignore are ignored by the command as well.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	var wanted []os.Signal
	for _, s := range passedOn {
		if !signal.Ignored(s) {
			wanted = append(wanted, s)
		}
	}
	signal.Notify(c, wanted...)
	return c, func() { signal.Stop(c) }
}
