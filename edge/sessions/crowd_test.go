package sessions_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/schema"
)

// TestCrowd: a session with more threads than are remembered of one is refused in words, also to who would stream it,
// and can still be closed: it is not there for ever.
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
	for _, rt := range []string{"GET ", "GET /events", "GET /events?order=desc", "GET /threads", "GET /events/stream?replay=live", "POST /events", "POST /archive", "POST /cancel", "DELETE ", "GET "} {
		begun := time.Now()
		m, p := rt[:len(rt)-len(rt[len("GET "):])], ""
		_ = m
		_ = p
		var method, path string
		fmt.Sscanf(rt, "%s %s", &method, &path)
		body := ""
		if rt == "POST /events" {
			body = hello
		}
		a := h.do(method, cloud+"/"+id+path, body)
		fmt.Println(rt, a.status, a.body[:min(len(a.body), 250)], time.Since(begun))
	}
}
