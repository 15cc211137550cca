//go:build !linux

package child

import "os/exec"

// EndWithParent does nothing: only Linux can end a process with its parent.
func EndWithParent(*exec.Cmd) {}

// OwnGroup does nothing: process groups are set on Linux only.
func OwnGroup(*exec.Cmd) {}
