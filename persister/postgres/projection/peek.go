package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// maxName bounds, in bytes, a text of a payload that is kept beside its event.
const maxName = 200

// peeked is a JSON object, taken apart one level deep. Its Fields are nil for anything that is not an object. Of two
// fields with the same name the last counts, as in jsonb.
type peeked struct{ jsonscan.Fields }

func peek(object []byte) peeked {
	if !json.Valid(object) {
		return peeked{}
	}
	return peeked{jsonscan.Fields(nil).Read(object)}
}

func (p peeked) object(name string) peeked { return peek(p.Raw(name)) }

// text returns the string in a field, "" when it holds anything else. NUL, which text columns cannot hold, and unpaired
// surrogates become U+FFFD.
func (p peeked) text(name string) string {
	s, _ := jsonscan.Unquote(p.Raw(name))
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// name returns the text in a field, cut to maxName.
func (p peeked) name(name string) string { return cut(p.text(name), maxName) }

// id returns the text in a field, for comparison with others: of a long one its beginning and a hash.
func (p peeked) id(name string) string {
	s := p.text(name)
	if len(s) <= maxName {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return cut(s, maxName-35) + "…" + hex.EncodeToString(sum[:16])
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// most is the greatest number that is accepted.
const most = 1e15

// number returns the number in a field, rounded to nine decimals. ok is false unless it is from 0 to most.
func (p peeked) number(name string) (x float64, ok bool) {
	v := p.Raw(name)
	if len(v) == 0 || v[0] == '"' {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil || !(x >= 0 && x <= most) {
		return 0, false
	}
	if x < 1e6 {
		x = math.Round(x*1e9) / 1e9
	}
	return math.Abs(x), true // not -0
}

// first returns the first whole number from 0 to most in the fields with these names.
func (p peeked) first(names ...string) (n int64, ok bool) {
	for _, name := range names {
		v := p.Raw(name)
		if len(v) == 0 || v[0] == '"' {
			continue
		}
		if x, err := strconv.ParseFloat(string(v), 64); err == nil && x >= 0 && x <= most && x == math.Trunc(x) {
			return int64(x), true
		}
	}
	return 0, false
}

// tokens is the usage that a provider reports, under common names. Some providers count tokens read from a cache as
// input and some do not: here they are not input.
type tokens struct {
	reported                             bool // the event has a usage object
	input, output, cacheRead, cacheWrite int64
	cost                                 float64 // as reported; unknown when the event has none
}

// unknown stands for a missing number. Numbers are never negative.
const unknown = -1

func tokensOf(payload peeked) (t tokens) {
	t.cost = unknown
	usage := payload.object("usage")
	if usage.Fields == nil {
		return t
	}
	t.reported = true
	t.input, _ = usage.first("input_tokens", "prompt_tokens", "promptTokenCount")
	t.output, _ = usage.first("output_tokens", "completion_tokens", "candidatesTokenCount")
	thoughts, _ := usage.first("thoughtsTokenCount")
	t.output += thoughts
	within, cached := usage.object("input_tokens_details").first("cached_tokens")
	if !cached {
		within, cached = usage.object("prompt_tokens_details").first("cached_tokens")
	}
	if !cached {
		within, _ = usage.first("cachedContentTokenCount")
	}
	t.input = max(t.input-within, 0)
	if read, ok := usage.first("cache_read_input_tokens"); ok {
		within = read
	}
	t.cacheRead = within
	t.cacheWrite, _ = usage.first("cache_creation_input_tokens")
	for _, name := range []string{"cost", "cost_usd", "total_cost_usd"} {
		if cost, ok := usage.number(name); ok {
			t.cost = cost
			break
		}
	}
	return t
}
