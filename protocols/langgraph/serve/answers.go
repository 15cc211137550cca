package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/protocols/langgraph"
)

const (
	// maxNamed bounds what an error names of what waits.
	maxNamed = 8
	// maxAnswers bounds the names that are looked for in an answer.
	maxAnswers = 1024
)

// waiting names the requests that wait, for the words of a refusal.
func waiting(open []langgraph.Request) string {
	if len(open) == 0 {
		return "nothing waits for an answer"
	}
	var ids []string
	for _, r := range open[:min(len(open), maxNamed)] {
		ids = append(ids, fmt.Sprintf("%.100q", r.ID))
	}
	more := ""
	if n := len(open) - len(ids); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "these wait for an answer: " + strings.Join(ids, ", ") + more
}

// conflict refuses an answer to what does not wait: with 409 over the older API, and with the protocol's code
// everywhere.
func conflict(format string, args ...any) error {
	return dialect.RefuseAs(langgraph.CodeNoSuchInterrupt, dialect.ErrGone, format, args...)
}

// answersIn returns the answers in a value by the ids of their requests. An object that has ids for its names answers
// what it names, and nothing else: a name of what does not wait any more, or never has, is a conflict. Any other value
// is the answer to the only request.
func answersIn(value []byte, p *langgraph.Projector, open []langgraph.Request) (map[string]json.RawMessage, error) {
	said := map[string]json.RawMessage{}
	if len(value) > 0 && value[0] == '{' {
		_ = json.Unmarshal(value, &said) // it was decoded
	}
	ids := make(map[string]bool, len(open))
	for _, r := range open {
		ids[r.ID] = true
	}
	waits, asked, other := 0, requestIDs(p), ""
	for name := range said {
		switch {
		case ids[name]:
			waits++
		case len(said) <= maxAnswers && (asked[name] || likeID(name, open)):
			return nil, conflict("%.100q does not wait for an answer; %s", name, waiting(open))
		default:
			other = name
		}
	}
	switch {
	case len(open) == 0:
		return nil, unprocessable("%s", waiting(open))
	case waits > 0 && waits == len(said):
		return said, nil
	case waits > 0:
		return nil, unprocessable("%.100q is no id of a request, and the others are; %s", other, waiting(open))
	case len(open) > 1:
		return nil, unprocessable("several requests wait, and the answer is no object with the answer to some by their ids; %s", waiting(open))
	}
	return map[string]json.RawMessage{open[0].ID: value}, nil
}

// likeID reports whether a name has the form of ids: of those that LangGraph makes, of UUIDs, or of those that wait. An
// object of such names answers requests, and is no answer itself.
func likeID(name string, open []langgraph.Request) bool {
	if digits := strings.ReplaceAll(name, "-", ""); len(digits) == 32 &&
		strings.Trim(digits, "0123456789abcdefABCDEF") == "" {
		return true
	}
	return slices.ContainsFunc(open[:min(len(open), maxNamed)],
		func(r langgraph.Request) bool { return alike(name, r.ID) })
}

// alike reports whether two ids differ in what counts alone: both begin alike, up to the last mark or up to the digits
// at the end, and go on with something that has a digit.
func alike(a, b string) bool {
	const digits = "0123456789"
	n, m := strings.LastIndexAny(a, "_-:./|#")+1, strings.LastIndexAny(b, "_-:./|#")+1
	if n > 0 && a[:n] == b[:m] && strings.ContainsAny(a[n:], digits) && strings.ContainsAny(b[m:], digits) {
		return true
	}
	stem := strings.TrimRight(a, digits)
	return stem != "" && len(stem) < len(a) && stem == strings.TrimRight(b, digits) && len(stem) < len(b)
}

// requestIDs returns the ids of the requests that a thread has made; of none where there is no thread.
func requestIDs(p *langgraph.Projector) map[string]bool {
	if p == nil {
		return nil
	}
	return p.AllRequests()
}
