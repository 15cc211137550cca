package langgraph

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/edge/dialect"
)

// channel is what a frame is: its method, but for input.requested and input.answered, which are input.
type channel int

const (
	lifecycle channel = iota
	messages
	tools
	input
	values
	updates
	checkpoints
	tasks
	custom
)

var channels = [...]string{"lifecycle", "messages", "tools", "input", "values", "updates", "checkpoints", "tasks",
	"custom"}

// customPrefix is before the name of a custom channel.
const customPrefix = "custom:"

// ThreadFilter selects the events of a thread that a client wants.
type ThreadFilter struct {
	Channels   []string   `json:"channels"`             // sorted, without doubles: the nine, and custom:NAME
	Namespaces [][]string `json:"namespaces,omitempty"` // prefixes; nil: all
	// of an event below its prefix, at most; without Namespaces it means nothing
	Depth *int `json:"depth,omitempty"`
}

// selection is a filter. The Kind of a frame is its channel, the Lane its namespace and the name of a custom event, as
// laneOf writes them.
type selection struct {
	key      string
	kinds    [len(channels)]bool
	names    []string // of custom events
	prefixes [][]string
	depth    int // -1: any
}

var _ dialect.Selection = (*selection)(nil)

// Selection returns the filter as a selection.
func (f ThreadFilter) Selection() dialect.Selection {
	s := &selection{prefixes: f.Namespaces, depth: -1}
	if f.Depth != nil {
		s.depth = *f.Depth
	}
	for _, name := range f.Channels {
		if n, ok := strings.CutPrefix(name, customPrefix); ok {
			s.names = append(s.names, n)
		} else {
			s.kinds[slices.Index(channels[:], name)] = true
		}
	}
	key, _ := json.Marshal(f) // texts and numbers always encode
	s.key = string(key)
	return s
}

// ReadSelection returns the filter that a key of a selection says.
func ReadSelection(key string) (ThreadFilter, error) { return ParseFilter([]byte(key)) }

func (s *selection) Key() string { return s.key }

func (s *selection) Match(f *dialect.Frame) bool {
	lane, name, _ := bytes.Cut(f.Lane, []byte{nameMark})
	if !s.kinds[f.Kind] && (channel(f.Kind) != custom || !slices.Contains(s.names, string(name))) {
		return false
	}
	if len(s.prefixes) == 0 {
		return true
	}
	return slices.ContainsFunc(s.prefixes, func(prefix []string) bool { return within(lane, prefix, s.depth) })
}

// within reports whether a namespace is that of a prefix, or at most depth segments below it. A segment of the prefix
// without a colon stands for all that are the same up to their first colon.
func within(lane []byte, prefix []string, depth int) bool {
	for _, want := range prefix {
		segment, rest, ok := bytes.Cut(lane, []byte{segmentMark})
		if !ok {
			return false
		}
		if string(segment) != want {
			word, _, colon := bytes.Cut(segment, []byte{':'})
			if !colon || string(word) != want {
				return false
			}
		}
		lane = rest
	}
	return depth < 0 || bytes.Count(lane, []byte{segmentMark}) <= depth
}

// What stands behind each segment of a Lane, and before the name of a custom event. No segment has them.
const (
	segmentMark = 0
	nameMark    = 1
)

// laneOf writes a namespace as the Lane of a frame.
func laneOf(dst []byte, namespace []string) []byte {
	for _, s := range namespace {
		dst = append(append(dst, s...), segmentMark)
	}
	return dst
}

// segmentOf makes a text a segment of a namespace.
func segmentOf(s string) string {
	if strings.IndexFunc(s, isControl) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return '_'
		}
		return r
	}, s)
}

func isControl(r rune) bool { return r < ' ' }
