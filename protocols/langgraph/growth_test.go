package langgraph

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// counted reads a log and counts how often each record was read.
func counted(list []schema.Record, times map[schema.Seq]int) Records {
	return func(after, through schema.Seq) iter.Seq2[schema.Record, error] {
		return func(yield func(schema.Record, error) bool) {
			for _, r := range list[after:through] {
				if times[r.Seq]++; !yield(r, nil) {
					return
				}
			}
		}
	}
}

// TestStateOfManyMessages: a state that is made of messages has the newest 4 MiB of them, counts the others, and reads
// no record twice, nor the records of what it leaves out.
func TestStateOfManyMessages(t *testing.T) {
	const messages, size = 200, 64 << 10
	text := strings.Repeat("x", size)
	var events []schema.Event
	for i := range messages {
		for _, line := range []string{
			`message.start {"message_id":"m%d","role":"assistant"}`,
			`child:text.delta {"text":"%d"}`,
			`message.end {"message_id":"m%d","content":[{"type":"text","text":"` + text + `"}]}`,
			`tool.start {"call_id":"c%d","tool":"t"}`,
			`tool.end {"call_id":"c%d","ok":true,"output":"o"}`,
		} {
			events = append(events, schematest.Short(fmt.Sprintf(line, i)).Events...)
		}
	}
	list := schematest.Records(t, schematest.Scenario{Events: events})
	p := newProjector(dialect.Request{})
	for _, r := range list {
		if err := p.Project(nil, r); err != nil {
			t.Fatal(err)
		}
	}
	times := map[schema.Seq]int{}
	state, err := p.AppendState(nil, counted(list, times))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Values struct {
			Messages []struct{ Type, ID, Name string }
		}
		Metadata struct {
			Omitted int `json:"omitted_messages"`
		}
	}
	if err := json.Unmarshal(state, &got); err != nil {
		t.Fatal(err)
	}
	said := got.Values.Messages
	if n := len(said); n < 100 || n+got.Metadata.Omitted != 2*messages || len(state) > maxState+maxState/4 {
		t.Errorf("%d messages of %d bytes, %d are omitted", n, len(state), got.Metadata.Omitted)
	}
	if last := said[len(said)-2]; last.ID != fmt.Sprint("m", messages-1) || said[len(said)-1].Name != "t" {
		t.Errorf("the newest are %v", said[len(said)-2:])
	}
	for seq, n := range times {
		if n > 1 {
			t.Fatalf("record %d is read %d times", seq, n)
		}
	}
	if len(times) > 5*(len(said)/2+2) {
		t.Errorf("%d records are read for %d messages", len(times), len(said))
	}
}

// TestStateOfMessagesApart: what lies far between two messages is not read, and messages within each other come in the
// order in which they end.
func TestStateOfMessagesApart(t *testing.T) {
	log := `message.start {"message_id":"a","role":"assistant"}
		message.end {"message_id":"w","content":"within"}
		message.end {"message_id":"a","content":"whole"}` + "\n" + strings.Repeat("progress {}\n", 2*maxGap) + `
		message.end {"message_id":"b","content":"later"}`
	list := schematest.Records(t, schematest.Short(log))
	p := newProjector(dialect.Request{})
	for _, r := range list {
		if err := p.Project(nil, r); err != nil {
			t.Fatal(err)
		}
	}
	times := map[schema.Seq]int{}
	state, err := p.AppendState(nil, counted(list, times))
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, said := range []string{"within", "whole", "later"} {
		i := strings.Index(string(state), said)
		if i <= at {
			t.Fatalf("%s is not in its place: %s", said, state)
		}
		at = i
	}
	if len(times) > maxGap {
		t.Errorf("%d records are read", len(times))
	}
}
