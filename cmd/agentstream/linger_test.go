package main

import (
	"testing"
	"time"
)

// 0 on the command line is none; in the persister's Config it is the default.
func TestLinger(t *testing.T) {
	for flag, want := range map[string]time.Duration{"": time.Second, "--linger=2s": 2 * time.Second, "--linger=0": -1} {
		args := []string{"dev"}
		if flag != "" {
			args = append(args, flag)
		}
		cli, err := parse(t, nil, args...)
		if err != nil || cli.Dev.linger() != want {
			t.Errorf("%q: %v, want %v (%v)", flag, cli.Dev.linger(), want, err)
		}
	}
}
