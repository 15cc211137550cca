//go:build !race

package assemble

// streams is how many random logs are read.
const streams = 2000
