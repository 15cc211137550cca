//go:build !race

package native_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/protocols/native"
)

func TestContract(t *testing.T) {
	full := url.Values{"detail": {"full"}}
	with := func(name, value string) url.Values { return url.Values{"detail": full["detail"], name: {value}} }
	dialecttest.Suite{
		Dialect: native.Dialect{},
		Streams: native.Protocol().AllStreams(),
		Inputs: map[string]dialect.Input{
			"full":     {Stream: "run", Query: full},
			"named":    {Stream: "run", Query: with("event", "type")},
			"types":    {Stream: "run", Query: with("types", "text.*,turn.end")},
			"children": {Stream: "run", Query: with("children", "-")},
			"joined":   {Stream: "run"},
			"socket":   {Stream: "run.ws", Query: full},
		},
		Refusal: func(body []byte, p dialect.Problem) error {
			var b struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal(body, &b); err != nil || b.Error.Code != p.Code {
				return fmt.Errorf("code %q: %v", b.Error.Code, err)
			}
			return nil
		},
	}.Run(t)
}
