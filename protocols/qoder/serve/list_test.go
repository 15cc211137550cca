package serve_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"
	"time"

	"agentstream/schema"
)

func (h *house) ids(path string) (ids []string) {
	h.t.Helper()
	for _, o := range h.page(path).Data {
		ids = append(ids, idOf(o))
	}
	return ids
}

func TestList(t *testing.T) {
	h := newHouse(t, true)
	if got := h.ids(cloud); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	var all []string
	for i := range 14 {
		all = append(all, h.create(fmt.Sprintf(`{"agent":"agent_%d","environment_id":"e","title":"%d"}`, i%2, i)))
		time.Sleep(2 * time.Millisecond) // they are listed by the time of their beginning
	}
	h.create(plainBody, as, "tenant:globex")
	h.says("run", event(schema.TypeRunLifecycle, `{"state":"running","reason":null}`))
	all = append(all, "run")
	rng := rand.New(rand.NewPCG(2, 2))
	size := func() int { return 1 + rng.IntN(4) }
	listed := func(q url.Values) (ids []string) {
		t.Helper()
		for _, p := range h.walk(cloud, q, size) {
			for _, o := range p {
				ids = append(ids, idOf([]byte(o)))
			}
		}
		return ids
	}
	same(t, "oldest first", listed(url.Values{"order": {"asc"}}), all)
	newest := slices.Clone(all)
	slices.Reverse(newest)
	same(t, "newest first", listed(url.Values{}), newest)
	for i, id := range newest {
		same(t, "behind", listed(url.Values{"after_id": {id}}), newest[i+1:])
		if got := h.ids(cloud + "?limit=1000&before_id=" + id); fmt.Sprint(got) != fmt.Sprint(newest[:i]) {
			t.Errorf("in front of %s: %v", id, got)
		}
	}
	if got := h.ids(cloud + "?limit=2&before_id=" + newest[5]); !slices.Equal(got, newest[3:5]) {
		t.Errorf("right in front: %v, want %v", got, newest[3:5])
	}
	if got := listed(url.Values{"agent_id": {"agent_1"}, "order": {"asc"}}); len(got) != 7 || got[0] != all[1] {
		t.Errorf("of an agent: %v", got)
	}
	if got := listed(url.Values{"statuses[]": {"running"}}); !slices.Equal(got, []string{"run"}) {
		t.Errorf("running: %v", got)
	}
	same(t, "idle", listed(url.Values{"statuses[]": {"idle", "terminated"}, "order": {"asc"}}), all[:14])
	h.do("POST", cloud+"/"+all[3]+"/archive", "").OK(200)
	h.do("DELETE", cloud+"/"+all[4], "").OK(200)
	if got := listed(url.Values{"order": {"asc"}}); len(got) != 13 || slices.Contains(got, all[3]) ||
		slices.Contains(got, all[4]) {
		t.Errorf("%v", got)
	}
	if got := listed(url.Values{"order": {"asc"}, "include_archived": {"true"}}); len(got) != 14 ||
		!slices.Contains(got, all[3]) || slices.Contains(got, all[4]) {
		t.Errorf("with archived: %v", got)
	}
	o := h.do("GET", cloud+"/"+all[6], "").OK(200)
	at := o["created_at"].(string)
	if got := listed(url.Values{"created_at[gte]": {at}, "order": {"asc"}}); got[0] != all[6] {
		t.Errorf("since: %v", got)
	}
	if got := listed(url.Values{"created_at[gt]": {at}, "order": {"asc"}}); slices.Contains(got, all[6]) {
		t.Errorf("later: %v", got)
	}
	if got := listed(url.Values{"created_at[lte]": {at}}); got[0] != all[6] {
		t.Errorf("until: %v", got)
	}
	if got := listed(url.Values{"created_at[lt]": {at}}); slices.Contains(got, all[6]) {
		t.Errorf("before: %v", got)
	}
	h.do("GET", cloud+"?after_id=sess_none", "").refused(400, "invalid_request_error")
	h.do("GET", cloud+"?after_id="+all[0], "", as, "tenant:globex").refused(400, "invalid_request_error")
}

// TestNoList asks a server that persists nothing.
func TestNoList(t *testing.T) {
	h := newHouse(t, false)
	if a := h.do("GET", cloud, ""); a.Status != 501 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
