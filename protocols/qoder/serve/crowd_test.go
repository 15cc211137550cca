package serve_test

import (
	"fmt"
	"slices"
	"testing"

	"agentstream/schema"
)

// TestCrowd: a session with more threads than are remembered of one is refused in words, also to who would stream it,
// and its agent can still be stopped, and the whole deleted.
func TestCrowd(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	for from := range 20 {
		batch := make([]schema.Event, 1000)
		for i := range batch {
			batch[i] = event(schema.TypeChildSpawn, fmt.Sprintf(`{"child_id":"kid_%d"}`, from*1000+i))
		}
		h.says(id, batch...)
	}
	for _, path := range []string{"", "/events", "/events?order=desc", "/threads", "/events/stream"} {
		h.do("GET", cloud+"/"+id+path, "").refused(413, "invalid_request_error")
	}
	h.do("POST", eventsPath(id, ""), hello).refused(413, "invalid_request_error")
	h.do("POST", cloud+"/"+id+"/cancel", "").OK(202)
	h.do("DELETE", cloud+"/"+id, "").OK(200)
	if all := h.types(id); !slices.Equal(all[len(all)-3:],
		[]string{"command.cancel", "command.cancel", schema.TypeSessionDeleted}) {
		t.Errorf("%q", all[len(all)-3:])
	}
}
