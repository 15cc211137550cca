//go:build !race

package metis_test

import (
	"encoding/json"
	"errors"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/protocols/metis"
)

// TestContract: the dialect is what every dialect is.
func TestContract(t *testing.T) {
	subscribe := func(filter string) dialect.Input {
		return dialect.Input{Stream: metis.StreamName, Body: []byte(`{"type":"subscribe","filter":` + filter + `}`)}
	}
	dialecttest.Suite{
		Dialect: metis.Dialect{},
		Streams: []dialect.Stream{{Name: metis.StreamName, Mode: dialect.ModeB, Children: true, Shared: true}},
		Inputs: map[string]dialect.Input{
			"full":   subscribe(`"preset:full"`),
			"chat":   subscribe(`"preset:chat"`),
			"agents": subscribe(`{"event_types":["text.delta","turn.completed"],"actors":["agent"],"include_worker_sessions":true}`),
		},
		Behind: func(in *dialect.Input, token string) {
			var m map[string]any
			_ = json.Unmarshal(in.Body, &m) // it is one of those above
			m["since"] = token
			in.Body, _ = json.Marshal(m)
		},
		State: 1 << 20,
		Refusal: func(body []byte, _ dialect.Problem) error {
			var b struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal(body, &b); err != nil || b.Error.Code == "" {
				return errors.New("not an error of this protocol")
			}
			return nil
		},
	}.Run(t)
}
