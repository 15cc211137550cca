//go:build !race

package agui

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
)

// TestContract: the dialect is what every dialect is: every event is a place to resume from.
func TestContract(t *testing.T) {
	dialecttest.Suite{
		Dialect: Dialect{}, Streams: Protocol().AllStreams(),
		Inputs: map[string]dialect.Input{"watch": {Stream: streamWatch}}, State: 1 << 20,
	}.Run(t)
}
