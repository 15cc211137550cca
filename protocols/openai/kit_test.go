package openai

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write testdata")

// eventsOf are the events of the n-th response of records, and whether it has ended.
func eventsOf(t testing.TB, n int, records []schema.Record) (list []string, ended bool) {
	t.Helper()
	p := Dialect{}.Projector(dialect.Request{Run: "run_a", Span: strconv.Itoa(n)})
	var out dialect.Frames
	for _, r := range records {
		out.Reset()
		if err := p.Project(&out, r); err != nil {
			t.Fatalf("seq %d: %v", r.Seq, err)
		}
		for _, f := range out.List {
			list = append(list, string(f.Data))
			ended = ended || f.Last
		}
	}
	return list, ended
}

// event is what the tests read of an event.
type event struct {
	Type         string          `json:"type"`
	Number       *int            `json:"sequence_number"`
	OutputIndex  int             `json:"output_index"`
	ItemID       string          `json:"item_id"`
	Delta        *string         `json:"delta"`
	Text         *string         `json:"text"`
	Arguments    *string         `json:"arguments"`
	Item         json.RawMessage `json:"item"`
	Response     *responseSaid   `json:"response"`
	Error        json.RawMessage `json:"error"`
	ContentIndex *int            `json:"content_index"`
	SummaryIndex *int            `json:"summary_index"`
}

type responseSaid struct {
	ID     string            `json:"id"`
	Status string            `json:"status"`
	Output []json.RawMessage `json:"output"`
}

// rules is what the clients hold the events of a response to.
type rules struct {
	events int
	items  []*itemRules
	parts  map[string]bool
	ended  bool
}

type itemRules struct {
	id, text string
	part     bool // it is open
	said     bool // its text is done
	done     json.RawMessage
}

// known are the types of events, after "response.".
var known = strings.Fields(`created queued in_progress completed failed incomplete output_item.added output_item.done
	content_part.added content_part.done output_text.delta output_text.done reasoning_summary_part.added reasoning_summary_part.done
	reasoning_summary_text.delta reasoning_summary_text.done mcp_call.in_progress mcp_call.completed mcp_call.failed
	mcp_call_arguments.delta mcp_call_arguments.done`)

// check returns what is wrong with the next event.
func (v *rules) check(data string) error {
	var e event
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return err
	}
	switch {
	case !slices.Contains(known, strings.TrimPrefix(e.Type, "response.")):
		return fmt.Errorf("no type of the union")
	case e.Error != nil:
		return fmt.Errorf("an error on top ends the stream of a client")
	case e.Number == nil || *e.Number != v.events:
		return fmt.Errorf("it is number %d", v.events)
	case v.ended:
		return fmt.Errorf("it is after the end")
	case (v.events == 0) != (e.Type == "response.created"):
		return fmt.Errorf("response.created is number 0")
	}
	v.events++
	if e.Response != nil {
		return v.response(&e)
	}
	if e.Type == "response.output_item.added" {
		if e.OutputIndex != len(v.items) {
			return fmt.Errorf("output_index is to be %d", len(v.items))
		}
		v.items = append(v.items, &itemRules{id: idOf(e.Item)})
		return nil
	}
	if e.OutputIndex >= len(v.items) {
		return fmt.Errorf("no such item")
	}
	it := v.items[e.OutputIndex]
	if it.done != nil || e.Item == nil && e.ItemID != it.id {
		return fmt.Errorf("the item has ended, or has another id")
	}
	return it.check(&e)
}

func idOf(item json.RawMessage) string {
	var it struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(item, &it)
	return it.ID
}

func (it *itemRules) check(e *event) error {
	call := strings.HasPrefix(e.Type, "response.mcp_call")
	switch {
	case strings.HasSuffix(e.Type, "_part.added"):
		it.part = true
	case e.Delta != nil:
		if it.said || !call && !it.part {
			return fmt.Errorf("a delta outside of a part")
		}
		it.text += *e.Delta
	case e.Text != nil || e.Arguments != nil:
		whole := e.Text
		if call {
			whole = e.Arguments
		}
		if it.said || *whole != it.text {
			return fmt.Errorf("the deltas are %q", it.text)
		}
		it.said = true
	case strings.HasSuffix(e.Type, "_part.done"):
		it.part = false
	case e.Type == "response.output_item.done":
		if it.part || !it.said || idOf(e.Item) != it.id {
			return fmt.Errorf("the item is not complete")
		}
		it.done = e.Item
	}
	return nil
}

func (v *rules) response(e *event) error {
	switch e.Type {
	case "response.completed", "response.failed", "response.incomplete":
		v.ended = true
	default:
		return nil
	}
	if len(e.Response.Output) != len(v.items) {
		return fmt.Errorf("%d items, %d were told", len(e.Response.Output), len(v.items))
	}
	for i, it := range v.items {
		if string(it.done) != string(e.Response.Output[i]) {
			return fmt.Errorf("item %d is %s", i, it.done)
		}
	}
	return nil
}
