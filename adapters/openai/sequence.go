package openai

import (
	"strconv"

	"agentstream/adapters/provider"
)

// sequence holds which events of a response have been seen, by their sequence_number. They are passed
// over only once it is known that a response is being repeated: there are services that number wrongly.
type sequence struct {
	response string // whose numbers they are; "" when nothing has named it yet
	seen     []uint64
	last     int            // highest number so far
	openers  map[string]int // numbers of the events that open a response, by type
	repeats  bool           // the response is sent again from somewhere
}

// maxSequence bounds the numbers that are compared: half a megabyte.
const maxSequence = 1 << 22

// see notes an event. It reports whether another response begins with it, and whether it was sent before. An id that
// differs is no other response by itself: proxies give every event one of its own.
func (s *sequence) see(typ string, all provider.Fields) (another, repeated bool) {
	id := all.Object("response").Str("id")
	n, err := strconv.Atoi(string(all.Get("sequence_number")))
	numbered := err == nil && n >= 0 && n < maxSequence
	another = s.response != "" && id != "" && id != s.response &&
		(typ == "response.created" || opens(typ) && numbered && n < s.last && !s.repeats)
	if another {
		*s = sequence{}
	}
	if s.response == "" {
		s.response = id
	}
	if !numbered {
		return another, false
	}
	was := n/64 < len(s.seen) && s.seen[n/64]&(1<<(n%64)) != 0
	for n/64 >= len(s.seen) {
		s.seen = append(s.seen, 0)
	}
	s.seen[n/64] |= 1 << (n % 64)
	s.last = max(s.last, n)
	if opens(typ) {
		if old, ok := s.openers[typ]; ok && old == n {
			s.repeats = true
		}
		if s.openers == nil {
			s.openers = make(map[string]int)
		}
		s.openers[typ] = n
	}
	return another, was && s.repeats && s.last > 0 // some services number all events alike
}

// opens reports whether events of a type come at the beginning of a response.
func opens(typ string) bool {
	return typ == "response.created" || typ == "response.queued" || typ == "response.in_progress"
}
