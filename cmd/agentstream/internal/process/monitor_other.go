//go:build !linux

package process

// easeMonitor does nothing: there is no timer slack to set.
func easeMonitor() {}
