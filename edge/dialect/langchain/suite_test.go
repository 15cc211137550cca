//go:build !race

package langchain_test

import (
	"encoding/json"
	"errors"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/edge/dialect/langchain"
)

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
