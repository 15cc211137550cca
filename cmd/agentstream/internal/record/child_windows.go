package record

import (
	"os"
)

// passedOn are the signals that a command gets which are sent to this process.
var passedOn = []os.Signal{os.Interrupt}

func isEnding(os.Signal) bool { return true }

func nameOf(os.Signal) string { return "SIGINT" }

// isFromTerminal reports whether the command has got the signal already: a console sends it to all of its processes.
func isFromTerminal(os.Signal) bool { return true }

func statusOf(p *os.ProcessState) (status int, sig string) { return p.ExitCode(), "" }

// errorPipe returns the standard error for a command, and what reads it.
func errorPipe(*os.File) (from, to *os.File, release func(), err error) {
	from, to, err = os.Pipe()
	return from, to, func() { _ = from.Close() }, err
}
