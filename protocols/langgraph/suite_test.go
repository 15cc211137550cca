//go:build !race

package langgraph_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/protocols/langgraph"
)

// older is the dialect as the older API asks it.
type older struct{ langgraph.Dialect }

func (older) Open(in dialect.Input) (dialect.Request, error) {
	return langgraph.Legacy{Thread: in.Path["run"], Modes: in.Query["stream_mode"], Subgraphs: in.Query.Has("deep"),
		LastEventID: cmp.Or(in.Header.Get("Last-Event-ID"), "-1")}.Request()
}

// TestLegacyContract: the older API is what every dialect is.
func TestLegacyContract(t *testing.T) {
	dialecttest.Suite{
		Dialect: older{},
		Streams: []dialect.Stream{{Name: langgraph.StreamName, Mode: dialect.ModeD}},
		Inputs: map[string]dialect.Input{
			"default": {Stream: langgraph.StreamName},
			"deep": {Stream: langgraph.StreamName,
				Query: url.Values{"stream_mode": {"values", "messages-tuple", "updates", "tasks", "checkpoints"}, "deep": {""}}},
		},
		State: 1 << 20,
	}.Run(t)
}

// TestContract: the dialect is what every dialect is.
func TestContract(t *testing.T) {
	ask := func(body string) dialect.Input {
		return dialect.Input{Stream: langgraph.StreamName, Body: []byte(body)}
	}
	dialecttest.Suite{
		Dialect: langgraph.Dialect{},
		Streams: []dialect.Stream{{Name: langgraph.StreamName, Mode: dialect.ModeD}},
		Inputs: map[string]dialect.Input{
			"all":      ask(`{"channels":["lifecycle","messages","tools","input","values","updates","checkpoints","tasks","custom"]}`),
			"root":     ask(`{"channels":["messages","tools"],"namespaces":[[]],"depth":0}`),
			"children": ask(`{"channels":["lifecycle","messages"],"namespaces":[["run_child_a"]]}`),
			"states":   ask(`{"channels":["values","checkpoints","custom:progress","input"]}`),
		},
		State: 1 << 20,
		Refusal: func(body []byte, _ dialect.Problem) error {
			var b struct{ Error, Message string }
			if err := json.Unmarshal(body, &b); err != nil || b.Error == "" || b.Message == "" {
				return errors.New("not an error of this protocol")
			}
			return nil
		},
	}.Run(t)
}
