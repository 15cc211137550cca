//go:build !race

package qoder_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/protocols/qoder"
	"agentstream/protocols/qoder/serve"
)

// TestContract: the dialect is what every dialect is.
func TestContract(t *testing.T) {
	previews := url.Values{"event_deltas[]": {"agent.message", "agent.thinking"}}
	coordinator := map[string]string{"thread": qoder.ThreadID("run_suite", "")}
	dialecttest.Suite{
		Dialect: qoder.Dialect{Increments: true},
		Streams: serve.Protocol(qoder.Dialect{}).AllStreams(),
		Inputs: map[string]dialect.Input{
			"session":  {Stream: "session" + qoder.BaseCloud},
			"previews": {Stream: "session.history" + qoder.BaseCloud, Query: previews},
			"thread":   {Stream: "thread" + qoder.BaseCloud, Path: coordinator, Query: previews},
			"next":     {Stream: "session" + qoder.BaseV1},
		},
		State: 1 << 20,
		Refusal: func(body []byte, _ dialect.Problem) error {
			var b struct {
				Error struct{ Type, Code, Message string }
			}
			if err := json.Unmarshal(body, &b); err != nil || b.Error.Type == "" || b.Error.Code == "" {
				return errors.New("not an error of this protocol")
			}
			return nil
		},
	}.Run(t)
}
