//go:build !race

package sample_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/protocols/sample"
)

// TestSample: the sample is what every dialect is.
func TestSample(t *testing.T) {
	only := func(kind string) url.Values { return url.Values{"only": {kind}} }
	dialecttest.Suite{
		Dialect: sample.Dialect{},
		Streams: sample.Protocol().AllStreams(),
		Inputs: map[string]dialect.Input{
			"all":       {Stream: "feed"},
			"sums":      {Stream: "feed.ws", Query: only("sum")},
			"types":     {Stream: "feed", Query: only("type")},
			"newest":    {Stream: "feed", Query: url.Values{"newest": {""}}},
			"to a turn": {Stream: "ask"},
			"posted":    {Stream: "look", Body: []byte(`{"Run":"run_suite","Only":"sum"}`)},
			"talk":      {Stream: "talk", Body: []byte(`{"ID":"a"}`)},
			"filtered":  {Stream: "talk", Body: []byte(`{"Types":["text.delta"]}`)},
		},
		Of: func(in *dialect.Input, run string) {
			if in.Path["run"] = run; in.Body != nil {
				in.Body = with(in.Body, "Run", run)
			}
		},
		Behind: func(in *dialect.Input, token string) {
			switch in.Header.Set("Last-Event-ID", token); {
			case in.Stream == "talk":
				in.Body = with(in.Body, "After", json.Number(token))
				in.Header.Del("Last-Event-ID")
			case in.Body != nil:
				in.Body = with(in.Body, "Last", token)
			}
		},
		State: 4 << 10,
	}.Run(t)
}

// with sets a field of an object.
func with(body []byte, name string, value any) []byte {
	m := map[string]any{}
	_ = json.Unmarshal(body, &m) // nothing is an empty object
	m[name] = value
	b, _ := json.Marshal(m)
	return b
}
