//go:build !linux

package cputime

import "time"

func ofThread() time.Duration { return Process() }
