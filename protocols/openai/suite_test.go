//go:build !race

package openai

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
)

// TestContract: the dialect is what every dialect is.
func TestContract(t *testing.T) {
	dialecttest.Suite{
		Dialect: Dialect{}, Streams: Protocol().AllStreams(), State: 4 << 20,
		Of:     func(in *dialect.Input, run string) { in.Path["response"] = prefix + run },
		Inputs: map[string]dialect.Input{"retrieve": {Stream: streamGet}},
	}.Run(t)
}
