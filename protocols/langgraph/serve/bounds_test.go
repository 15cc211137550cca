package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/protocols/langgraph/serve"
)

// texts returns a JSON list of so many texts.
func texts(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("k%d", i)
	}
	text, _ := json.Marshal(list) // strings always encode
	return string(text)
}

// fields returns a JSON object of so many fields.
func fields(n int) string {
	all := map[string]int{}
	for i := range n {
		all[fmt.Sprintf("k%d", i)] = i
	}
	text, _ := json.Marshal(all) // numbers always encode
	return string(text)
}

// TestListsAreBounded: what a client lists is at most 64 long, and a longer list is refused in the protocol's form.
func TestListsAreBounded(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	const most = dialect.MaxList
	for method, params := range map[string]func(n int) string{
		"state.get":             func(n int) string { return `{"namespace":[],"keys":` + texts(n) + `}` },
		"state.listCheckpoints": func(n int) string { return `{"namespace":` + texts(n) + `}` },
	} {
		n.ask("th", method, params(most))
		n.refuses("th", method, params(most+1), "invalid_argument")
	}
	n.refuses("th", "state.get", `{"namespace":`+texts(most+1)+`}`, "invalid_argument")
	n.refuses("th", "input.respond", `{"responses":[`+strings.Repeat(`{"interrupt_id":"x"},`, most)+
		`{"interrupt_id":"y"}]}`, "invalid_argument")
	n.do("POST", "/threads/th/history", `{"checkpoint":{"checkpoint_ns":"`+strings.Repeat("x|", most)+`x"}}`,
		"Content-Type", "application/json").refused(400, "invalid_argument")
	modes := `["` + strings.Repeat(`values","`, most) + `values"]`
	n.do("POST", "/threads/th/runs", `{"assistant_id":"a","stream_mode":`+modes+`}`, "Content-Type",
		"application/json").refused(422, "invalid_argument")
	for _, path := range []string{"/threads/search", "/threads/count"} {
		for _, search := range []func(n int) string{
			func(n int) string { return `{"metadata":` + fields(n) + `}` },
			func(n int) string { return `{"ids":` + texts(n) + `}` },
		} {
			// there is no archive
			n.do("POST", path, search(most), "Content-Type", "application/json").refused(501, "not_supported")
			n.do("POST", path, search(most+1), "Content-Type", "application/json").refused(422, "invalid_argument")
		}
	}
}

// TestManyRequestsAreAnsweredInParts: a run.start, or a resumption of the older API, that would answer more than 64
// requests, or repeat a large field in each answer, is refused.
func TestManyRequestsAreAnsweredInParts(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	var requests strings.Builder
	for i := range 65 {
		fmt.Fprintf(&requests, "input.requested {\"request_id\":\"k%d\"}\n", i)
	}
	n.Append("th", log(`commands.taken {"through":2}
		turn.start {"turn_id":"t"}
		`+requests.String()+`turn.end {"turn_id":"t","stop_reason":"end_turn"}`)...)
	n.refuses("th", "run.start", `{"assistant_id":"a","input":`+fields(65)+`}`, "invalid_argument")
	send := func(body string) answer {
		return n.do("POST", "/threads/th/runs", body, "Content-Type", "application/json")
	}
	send(`{"assistant_id":"a","command":{"resume":`+fields(65)+`}}`).refused(422, "invalid_argument")
	large := `"` + strings.Repeat("x", 40<<10) + `"`
	send(`{"assistant_id":"a","command":{"resume":`+fields(60)+`,"update":`+large+`}}`).refused(422, "invalid_argument")
	n.ask("th", "input.respond", `{"responses":[{"interrupt_id":"k1","response":1}]}`)
}
