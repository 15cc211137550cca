//go:build race

package assemble

// streams is how many random logs are read with the race detector, which makes that ten times as slow. Copies that are
// fed at the same time have a test of their own.
const streams = 200
