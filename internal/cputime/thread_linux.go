package cputime

import "syscall"

const thread = syscall.RUSAGE_THREAD
