package bench

import (
	"os/exec"
	"syscall"
)

// endWithParent covers a parent that is killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		// An interrupt at the terminal goes to the whole group: the load ends its runs first.
		Setpgid: true,
	}
}
