//go:build !race

package serve_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"agentstream/schema"
)

// TestListedIsAsked compares the object of a session in a list with the one that is asked for, field by field: what a
// list cannot know it says is not known, and nothing that is wrong.
func TestListedIsAsked(t *testing.T) {
	created := event(schema.TypeSessionCreated,
		`{"agent":{"id":"a","version":3,"model":"m"},"environment_id":"e","title":"T","metadata":{"k":"v"},"resources":[{"type":"file"}],"vault_ids":["v"],"incremental_streaming_enabled":true}`)
	state := func(s string) schema.Event { return event(schema.TypeRunLifecycle, `{"state":"`+s+`","reason":null}`) }
	turn, over := event(schema.TypeTurnStart, `{"turn_id":"t"}`), event(schema.TypeTurnEnd,
		`{"turn_id":"t","stop_reason":"end_turn"}`)
	said := event(schema.TypeMessageEnd, `{"message_id":"m","role":"assistant","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":3,"output_tokens":4}}`)
	ask := event(schema.TypeToolStart, `{"call_id":"c","tool":"x","permission":"ask"}`)
	request := event(schema.TypeInputRequested, `{"request_id":"q","prompt":"?"}`)
	answered := event("command.answer", `{"request_id":"c","answer":{"type":"user.tool_confirmation","result":"allow"}}`)
	for name, events := range map[string][]schema.Event{
		"created":              {created},
		"created bare":         {event(schema.TypeSessionCreated, `{"agent":"a"}`)},
		"no session":           {event(schema.TypeProgress, `{}`)},
		"running":              {created, state("running"), turn},
		"done":                 {created, state("running"), turn, said, over, state("done")},
		"error":                {created, state("running"), turn, state("error")},
		"aborted":              {state("running"), turn, state("aborted")},
		"paused":               {state("running"), turn, state("paused")},
		"approval":             {state("planning"), state("awaiting_approval")},
		"updated, no session":  {state("running"), event(schema.TypeSessionUpdated, `{"title":"U"}`)},
		"archived, no session": {state("running"), event(schema.TypeSessionArchived, `{}`)},
		"archived":             {created, event(schema.TypeSessionArchived, `{}`)},
		"turned off": {created, event(schema.TypeSessionUpdated,
			`{"incremental_streaming_enabled":false,"metadata":{"k":null}}`)},
		"usage of a child": {created, state("running"), turn, said,
			event(schema.TypeChildSpawn, `{"child_id":"kid"}`), of("kid", said)},
		"a turn":               {created, turn},
		"a turn that is over":  {created, turn, said, over},
		"a turn that waits":    {created, turn, ask},
		"a turn that asks":     {created, turn, request},
		"a question alone":     {created, request},
		"it waits and is over": {created, turn, ask, over},
		"it was answered":      {created, turn, ask, answered},
		"one of two answered":  {created, turn, ask, request, answered},
		"the call has ended":   {created, turn, ask, event(schema.TypeToolEnd, `{"call_id":"c","ok":true}`)},
		"it was asked and ended": {created, turn, ask,
			event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"cancelled"}`)},
		"a child asks": {created, turn, event(schema.TypeChildSpawn, `{"child_id":"kid"}`), of("kid", turn),
			of("kid", request)},
		"a turn cancelled":     {created, turn, event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"cancelled"}`)},
		"a turn that failed":   {created, turn, event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"error"}`)},
		"a second turn":        {created, turn, said, over, event(schema.TypeCommandMessage, `{"content":"x"}`), turn},
		"a turn while running": {created, state("running"), turn, over},
		"going on":             {state("running"), turn, state("paused"), state("running")},
		"a turn of a child":    {created, event(schema.TypeChildSpawn, `{"child_id":"kid"}`), of("kid", turn)},
		"failed, begun anew":   {created, turn, state("error"), event(schema.TypeCommandMessage, `{"content":"x"}`)},
		"begun anew":           {created, turn, over, state("done"), event(schema.TypeCommandMessage, `{"content":"x"}`)},
		"asked":                {created, event(schema.TypeCommandMessage, `{"content":"x"}`)},
		"changed after its end": {created, turn, over, state("done"),
			event(schema.TypeRunLifecycle, `{"state":"planning","reason":null,"session":true}`),
			event(schema.TypeSessionUpdated, `{"title":"U"}`),
			event(schema.TypeRunLifecycle, `{"state":"done","reason":null,"session":true}`)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, true)
			for _, e := range events {
				h.says("run", e)
			}
			asked := h.do("GET", cloud+"/run", "").OK(200)
			p := h.page(cloud + "?include_archived=true")
			if len(p.Data) != 1 {
				t.Fatalf("%d are listed", len(p.Data))
			}
			var listed map[string]any
			if err := json.Unmarshal(p.Data[0], &listed); err != nil {
				t.Fatal(err)
			}
			delete(asked["stats"].(map[string]any), "active_seconds") // which a list does not know
			delete(listed["stats"].(map[string]any), "active_seconds")
			for field, want := range asked {
				got, ok := listed[field]
				if !ok || !reflect.DeepEqual(got, want) {
					t.Errorf("%s is listed as %v, asked for it is %v", field, got, want)
				}
			}
			for field := range listed {
				if _, ok := asked[field]; !ok {
					t.Errorf("%s is listed alone", field)
				}
			}
		})
	}
}
