//go:build unix

package record

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// passedOn are the signals that a command gets which are sent to this process.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// ending are those that ask for the end.
var ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

func isEnding(s os.Signal) bool { return slices.Contains(ending, s) }

func nameOf(s os.Signal) string { return unix.SignalName(s.(syscall.Signal)) }

// isFromTerminal reports whether the command has got the signal already: a terminal sends what is typed to all
// processes in the foreground, and the command is one of this process's group.
func isFromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// statusOf returns the exit status, and the signal that ended the process.
func statusOf(p *os.ProcessState) (status int, sig string) {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), unix.SignalName(w.Signal())
	}
	return p.ExitCode(), ""
}

// errorPipe returns the standard error for a command, which is a terminal where stderr is one, and what reads it.
func errorPipe(stderr *os.File) (from, to *os.File, release func(), err error) {
	if !term.IsTerminal(int(stderr.Fd())) {
		from, to, err = os.Pipe()
		return from, to, func() { _ = from.Close() }, err
	}
	from, to, err = pty.Open()
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err := term.MakeRaw(int(to.Fd())); err != nil { // the terminal itself ends lines
		_ = from.Close()
		_ = to.Close()
		return nil, nil, nil, err
	}
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	done := make(chan struct{})
	ended := make(chan struct{})
	_ = pty.InheritSize(stderr, from) // a terminal without a size is one
	go func() {
		defer close(ended)
		for {
			select {
			case <-sizes:
				_ = pty.InheritSize(stderr, from)
			case <-done:
				return
			}
		}
	}()
	return from, to, func() {
		signal.Stop(sizes)
		close(done)
		<-ended
		_ = from.Close()
	}, nil
}
