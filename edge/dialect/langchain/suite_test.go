//go:build !race

package langchain_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/edge/dialect/langchain"
)

// older is the dialect as the older API asks it.
type older struct{ langchain.Dialect }

func (older) Open(in dialect.Input) (dialect.Request, error) {
	return langchain.Legacy{Thread: in.Path["run"], Modes: in.Query["stream_mode"], Subgraphs: in.Query.Has("deep"),
		LastEventID: cmp.Or(in.Header.Get("Last-Event-ID"), "-1")}.Request()
}

// TestLegacyContract: the older API is what every dialect is.
func TestLegacyContract(t *testing.T) {
	dialecttest.Suite{
		Dialect: older{},
		Streams: []dialect.Stream{{Name: langchain.StreamName, Mode: dialect.ModeD}},
		Inputs: map[string]dialect.Input{
			"default": {Stream: langchain.StreamName},
			"deep":    {Stream: langchain.StreamName, Query: url.Values{"stream_mode": {"values", "messages-tuple", "updates", "tasks", "checkpoints"}, "deep": {""}}},
		},
		State: 1 << 20,
	}.Run(t)
}

// TestContract: the dialect is what every dialect is.
func TestContract(t *testing.T) {
	ask := func(body string) dialect.Input {
		return dialect.Input{Stream: langchain.StreamName, Body: []byte(body)}
	}
	dialecttest.Suite{
		Dialect: langchain.Dialect{},
		Streams: []dialect.Stream{{Name: langchain.StreamName, Mode: dialect.ModeD}},
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
