package cli

import (
	"context"
	"fmt"
	"io"
	"os"
)

// ExitStatus is an error that ends the program with a status of its own. Nothing is printed for it.
type ExitStatus int

// Error returns the status as text.
func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Streams are where a command reads and writes. Nil fields are the process's own.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Stdin returns In, or the standard input.
func (s *Streams) Stdin() io.Reader {
	if s.In == nil {
		return os.Stdin
	}
	return s.In
}

// Stdout returns Out, or the standard output.
func (s *Streams) Stdout() io.Writer {
	if s.Out == nil {
		return os.Stdout
	}
	return s.Out
}

// Stderr returns Err, or the standard error.
func (s *Streams) Stderr() io.Writer {
	if s.Err == nil {
		return os.Stderr
	}
	return s.Err
}

// Notice prints one line for the person to the standard error.
func (s *Streams) Notice(format string, args ...any) {
	fmt.Fprintf(s.Stderr(), "agentstream: "+format+"\n", args...)
}

// Interruptible lets a read of a terminal or a pipe be given up, which the system has no way to
// break off. The goroutine that is left in it ends with the read or with the process.
func Interruptible(ctx context.Context, r io.Reader) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, func() { pr.CloseWithError(context.Cause(ctx)) })
	return struct {
		io.Reader
		io.Closer
	}{pr, closer(func() error { stop(); return pr.Close() })}
}

type closer func() error

func (c closer) Close() error { return c() }

// MaxAhead bounds what may be read of one event, in bytes: an event has at most the largest output that a server moves
// by default, and a file without end is no event.
const MaxAhead = 65 << 20
