package native

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// TestGapIsNoMessage holds that what says which events a client was spared is never taken for an event of the
// protocol: over server-sent events it has its name and its id, and in the profile it is not sent where there are no
// names.
func TestGapIsNoMessage(t *testing.T) {
	r, err := schema.ScanLine([]byte(`{"id":"gap_42_97","ts":"2026-11-21T07:36:10.951Z","type":"stream.gap","run_id":"r","child_id":null,"seq":41,"payload":{"first_seq":42,"last_seq":97}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		stream string
		form   form
		frames int
	}{
		{StreamSSE, form{}, 1}, {StreamSSE, form{letter: true}, 1}, {StreamSSE, form{named: true}, 1},
		{StreamWS, form{}, 1}, {StreamWS, form{letter: true}, 0}, {StreamGRPC, form{}, 1},
		{StreamGRPC, form{letter: true}, 0},
	} {
		var out dialect.Frames
		if err := (Dialect{}).Projector(dialect.Request{Stream: tt.stream, Form: tt.form.key()}).Project(&out,
			r); err != nil {
			t.Fatal(err)
		}
		if len(out.List) != tt.frames {
			t.Errorf("%s %+v: %d frames, want %d", tt.stream, tt.form, len(out.List), tt.frames)
		}
		if tt.stream == StreamSSE && (string(out.List[0].Event) != "stream.gap" || string(out.List[0].Token) != "41") {
			t.Errorf("%+v: %s, id %s", tt.form, out.List[0].Event, out.List[0].Token)
		}
	}
}
