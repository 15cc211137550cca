package openai

import (
	"strconv"

	"agentstream/producers/provider"
)

// sequence knows which events of a response have been seen, by their sequence_number. They are passed
// over only once it is known that a response is being repeated: there are services that number wrongly.
type sequence struct {
	response string // whose numbers they are; "" when nothing has named it yet
	seen     []uint64
	openers  map[string]int // numbers of the events that open a response, by type
	repeats  bool           // the response is told again from somewhere
}

// maxSequence bounds the numbers that are compared: half a megabyte.
const maxSequence = 1 << 22

// repeated notes an event and says whether it was told before.
func (s *sequence) repeated(typ string, all provider.Fields) bool {
	if id := all.Object("response").Str("id"); id != "" && id != s.response {
		if s.response != "" {
			*s = sequence{}
		}
		s.response = id
	}
	n, err := strconv.Atoi(string(all.Get("sequence_number")))
	if err != nil || n < 0 || n >= maxSequence {
		return false
	}
	was := n/64 < len(s.seen) && s.seen[n/64]&(1<<(n%64)) != 0
	for n/64 >= len(s.seen) {
		s.seen = append(s.seen, 0)
	}
	s.seen[n/64] |= 1 << (n % 64)
	if opens(typ) {
		if old, ok := s.openers[typ]; ok && old == n {
			s.repeats = true
		}
		if s.openers == nil {
			s.openers = make(map[string]int)
		}
		s.openers[typ] = n
	}
	return was && s.repeats
}

// opens says that events of a type come at the beginning of a response.
func opens(typ string) bool {
	return typ == "response.created" || typ == "response.queued" || typ == "response.in_progress"
}
