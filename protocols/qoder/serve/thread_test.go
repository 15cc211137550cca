package serve_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"

	"agentstream/schema"
)

func TestThreads(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	if p := h.page(cloud + "/" + id + "/threads"); len(p.Data) != 1 {
		t.Fatalf("a session without children has %d threads", len(p.Data))
	}
	for i := range 12 {
		kid := fmt.Sprintf("kid_%d", i)
		h.says(id, event(schema.TypeChildSpawn, `{"child_id":"`+kid+`"}`),
			of(kid, event(schema.TypeTurnStart, `{"turn_id":"t"}`)))
		if i%2 == 0 {
			h.says(id, of(kid, event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`)))
		}
	}
	path := cloud + "/" + id + "/threads"
	all := texts(h.page(path + "?limit=1000").Data)
	if len(all) != 13 {
		t.Fatalf("%d threads", len(all))
	}
	for _, o := range all {
		if one := h.do("GET", path+"/"+idOf([]byte(o)), ""); one.Status != 200 || one.Body != o+"\n" {
			t.Errorf("alone %s, in the list %s", one.Body, o)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	size := func() int { return 1 + rng.IntN(4) }
	same(t, "upwards", slices.Concat(h.walk(path, url.Values{}, size)...), all)
	for i := range all {
		cursor := idOf([]byte(all[i]))
		same(t, "behind", slices.Concat(h.walk(path, url.Values{"after_id": {cursor}}, size)...), all[i+1:])
		pages := h.walk(path, url.Values{"before_id": {cursor}}, size)
		slices.Reverse(pages)
		same(t, "in front", slices.Concat(pages...), all[:i])
	}
	down := slices.Concat(h.walk(path, url.Values{"order": {"desc"}}, size)...)
	slices.Reverse(down)
	same(t, "downwards", down, all)
	running := slices.Concat(h.walk(path, url.Values{"statuses[]": {"running"}}, size)...)
	idle := slices.Concat(h.walk(path, url.Values{"statuses": {"idle,terminated"}}, size)...)
	if len(running) != 6 || len(idle) != 7 {
		t.Errorf("%d run, %d are idle", len(running), len(idle))
	}
	h.do("GET", path+"?statuses[]=asleep", "").refused(400, "invalid_request_error")
	h.do("GET", path+"/sthr_none", "").refused(404, "not_found_error")
	h.do("GET", path+"/sthr_none/events", "").refused(404, "not_found_error")
}

func TestArchiveThread(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.says(id, event(schema.TypeChildSpawn, `{"child_id":"kid"}`),
		of("kid", event(schema.TypeTurnStart, `{"turn_id":"t"}`)))
	path := cloud + "/" + id + "/threads"
	threads := h.page(path).Data
	main, kid := idOf(threads[0]), idOf(threads[1])
	h.do("POST", path+"/"+main+"/archive", "").refused(400, "invalid_request_error")
	h.do("POST", path+"/sthr_none/archive", "").refused(404, "not_found_error")
	first := h.do("POST", path+"/"+kid+"/archive", "")
	if o := first.OK(200); o["id"] != kid || o["type"] != "session_thread" || o["archived_at"] == nil {
		t.Errorf("%v", o)
	}
	last := h.head(id).Last
	if again := h.do("POST", path+"/"+kid+"/archive", ""); again.Body != first.Body || h.head(id).Last != last {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	if o := h.do("GET", cloud+"/"+id, "").OK(200); o["archived_at"] != nil {
		t.Errorf("the session is archived: %v", o)
	}
	if p := h.page(path + "/" + kid + "/events"); len(p.Data) == 0 {
		t.Error("an archived thread cannot be read")
	}
	h.do("POST", eventsPath(id, ""), hello).OK(200)
}

// TestThreadOfEndedRun archives a thread when all is over.
func TestThreadOfEndedRun(t *testing.T) {
	h := newHouse(t, false)
	h.says("run", event(schema.TypeChildSpawn, `{"child_id":"kid"}`),
		of("kid", event(schema.TypeTurnStart, `{"turn_id":"t"}`)),
		event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`))
	kid := idOf(h.page(cloud + "/run/threads").Data[1])
	if o := h.do("POST", cloud+"/run/threads/"+kid+"/archive", "").OK(200); o["archived_at"] == nil {
		t.Errorf("%v", o)
	}
	if h.head("run").State != schema.StateDone {
		t.Errorf("it is %s", h.head("run").State)
	}
}
