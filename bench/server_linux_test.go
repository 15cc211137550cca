package bench

import (
	"os/exec"
	"syscall"
)

// dieWithParent covers a parent that is killed: its end of the pipe may live on in a sibling.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
