package schema_test

import (
	"errors"
	"fmt"

	"agentstream/schema"
)

// A line of the log is one JSON object. Decoding and encoding it changes no byte of the payload.
func ExampleDecodeLine() {
	event, err := schema.DecodeLine([]byte(`{"id":"evt_01M7YH4N7Y0M9Z80E2W8RN2Q79","ts":"2026-01-02T03:04:05.000Z",` +
		`"type":"text.delta","run_id":"run_1","child_id":null,"seq":7,"payload":{"text":"caf\u00e9"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(event.Seq, event.Type, string(event.Payload))
	// Output:
	// 7 text.delta {"text":"caf\u00e9"}
}

// Fold adds events up to the state of a run.
func ExampleFold() {
	var sum schema.Fold
	for i, event := range []schema.Event{
		{Type: schema.TypeMessageStart, Payload: []byte(`{"message_id":"m1","role":"assistant"}`)},
		{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"Hello, "}`)},
		{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"world."}`)},
		{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)},
	} {
		event.RunID, event.Seq = "run_1", schema.Seq(i+1)
		sum.Add(&event)
	}
	fmt.Println(sum.State, sum.Text("", "text"), sum.Last)
	// Output:
	// done Hello, world. 4
}

// The catalogue says which family a type belongs to, and whether it is a piece of something larger.
func ExampleLookup() {
	info, err := schema.Lookup("text.delta")
	fmt.Println(info.Family, info.Delta, err)
	_, err = schema.Lookup("text.splash")
	fmt.Println(errors.Is(err, schema.ErrUnknownType))
	// Output:
	// text true <nil>
	// true
}

// A cursor that is not understood is refused; it never means "from the start".
func ExampleParseCursor() {
	for _, text := range []string{"", "41", "forty-one"} {
		seq, err := schema.ParseCursor(text)
		fmt.Println(seq, errors.Is(err, schema.ErrBadCursor))
	}
	// Output:
	// 0 false
	// 41 false
	// 0 true
}

// The subject of a pack names partition, tenant, run and lane.
func ExampleSubject() {
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	subject := schema.Subject(key, "", 1)
	fmt.Println(subject)
	back, lane, err := schema.ParseSubject(subject)
	fmt.Printf("%s %q %v\n", back, lane, err)
	// Output:
	// agent.0.acme.run_1.-
	// acme/run_1 "" <nil>
}
