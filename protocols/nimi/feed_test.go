package nimi

import (
	"testing"

	"agentstream/schema"
)

// TestBadEventsOfFeeds feeds what no client of a feed is shown.
func TestBadEventsOfFeeds(t *testing.T) {
	for _, tt := range []struct{ run, typ, payload, bad string }{
		{"runtime-account", "custom.runtime.account", `{"eventType":2,"unknown":1}`, ""},
		{"runtime-account", "custom.runtime.account", `{"eventType":["x"]}`, "account"},
		{"runtime-account", "custom.runtime.memory", `{}`, "account"},
		{"runtime-memory", "text.delta", `{"text":"x"}`, "memory"},
		{"runtime-transfer", "custom.runtime.transfer", `{"bytesReceived":"9"}`, ""},
		{"runtime-provider", "custom.runtime.provider", `{"providerName":"w","models":["a"]}`, ""},
		{"runtime-provider", "custom.runtime.provider", `{"models":["a"]}`, "provider"},
		{MessageRun("app"), "custom.runtime.message", `{"messageType":"t"}`, ""},
		{MessageRun("app"), "custom.runtime.message", `{"messageType":1}`, "message"},
		{"run", "custom.runtime.message", `nonsense`, ""},
	} {
		if got := Unread(tt.run, &schema.Event{Type: tt.typ, Payload: []byte(tt.payload)}); got != tt.bad {
			t.Errorf("%s %s %s is bad in %q, want %q", tt.run, tt.typ, tt.payload, got, tt.bad)
		}
	}
}
