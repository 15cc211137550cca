//go:build !race

package aisdk

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
)

// TestContract: the dialect is what every dialect is.
func TestContract(t *testing.T) {
	dialecttest.Suite{
		Dialect: Dialect{}, Streams: Protocol().AllStreams(), Texts: []string{doneText},
		Inputs: map[string]dialect.Input{"resume": {Stream: streamResume}}, State: 1 << 20,
	}.Run(t)
}
