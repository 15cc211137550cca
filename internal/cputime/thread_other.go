//go:build !linux

package cputime

import "syscall"

const thread = syscall.RUSAGE_SELF
