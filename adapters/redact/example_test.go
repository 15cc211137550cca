package redact_test

import (
	"fmt"
	"net/http"
	"net/url"

	"agentstream/adapters/redact"
	"agentstream/schema"
)

// A model that repeats the key of its request does not put it into the log, also not in two pieces.
func ExampleOf() {
	header := http.Header{"X-Api-Key": {"sk-very-secret-4711"}}
	filter := redact.Of(header, &url.URL{Scheme: "https", Host: "api.example"})
	var events []schema.Event
	for _, payload := range []string{`{"text":"the key is sk-very-","index":0}`, `{"text":"secret-4711.","index":0}`,
		`{"text":" Done.","index":0}`} {
		events = append(events, schema.Event{Type: schema.TypeTextDelta, Payload: []byte(payload)})
	}
	for _, event := range filter.Events(events) {
		fmt.Println(string(event.Payload))
	}
	// Output:
	// {"text":"the key is ","index":0}
	// {"text":"….","index":0}
	// {"text":" Done.","index":0}
}
