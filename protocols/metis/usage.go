package metis

import (
	"encoding/json"
	"strconv"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// usage is what a request to a model has used: three disjoint kinds of input, and output, in tokens.
type usage struct {
	input, cached, created, output int64
	cost                           float64 // dollars, as far as producers report it
	prices                         string  // version of the prices that the cost is made with
}

// usageOf reads a usage in whatever provider's words it was given.
func usageOf(object []byte) (u usage) {
	if len(object) == 0 {
		return u
	}
	of := schema.ParseUsage(string(object))
	first := func(names ...string) (n int64, name string) {
		for _, name := range names {
			if n, ok := of[name]; ok {
				return n, name
			}
		}
		return 0, ""
	}
	var name string
	u.input, name = first("input_tokens", "prompt_tokens", "promptTokenCount")
	u.output, _ = first("output_tokens", "completion_tokens", "candidatesTokenCount")
	u.output += of["thoughtsTokenCount"]
	u.created, _ = first("cache_creation_input_tokens")
	u.cached, _ = first("cache_read_input_tokens", "cachedContentTokenCount", "cached_input_tokens")
	details := jsonscan.Fields(nil).Read(object)
	for _, within := range []string{"prompt_tokens_details", "input_tokens_details"} {
		// there input counts what was cached
		if n, ok := jsonscan.WholeNumber(schema.Field(details.Object(within), "cached_tokens")); ok {
			u.cached, u.input = n, max(0, u.input-n)
		}
	}
	if name == "promptTokenCount" {
		u.input = max(0, u.input-u.cached)
	}
	if v := details.Number("cost_usd"); v != nil {
		_ = json.Unmarshal(v, &u.cost) // one that is too large is none
	}
	u.prices = shortenText(details.Str("pricing_version"))
	return u
}

func (u usage) plus(v usage) usage {
	return usage{u.input + v.input, u.cached + v.cached, u.created + v.created, u.output + v.output, u.cost + v.cost,
		v.prices}
}

func (u usage) version() string {
	if u.prices == "" {
		return unmanaged
	}
	return u.prices
}

// appendTo writes what a request has used.
func (u usage) appendTo(o jsonscan.Object) jsonscan.Object {
	return o.Int("input_tokens", u.input).Int("output_tokens", u.output).Int("cached_input_tokens", u.cached).
		Int("cache_creation_input_tokens", u.created).Float("cost_usd", u.cost).Str("pricing_version", u.version())
}

// numberOf returns a JSON number as it stands, 0 for anything else.
func numberOf(v []byte) []byte {
	if _, err := strconv.ParseFloat(string(v), 64); err != nil {
		return []byte(`0`)
	}
	return v
}

// millisOf reads a time in milliseconds.
func millisOf(v []byte) (int64, bool) {
	f, err := strconv.ParseFloat(string(v), 64)
	return int64(f), err == nil && f >= 0 && f < 1<<53
}
