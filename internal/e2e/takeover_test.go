package e2e_test

import (
	"net/http"
	"testing"
	"time"
)

// active is how many partitions a persister says it works on; -1 when it does not answer.
func active(r *role) int {
	status, text := getText("http://" + r.admin + "/metrics")
	if status != http.StatusOK {
		return -1
	}
	n, _, _ := scraped(text, "agentstream_persist_active")
	return int(n)
}

// Two persisters share the partitions. When one is killed the other takes its share over; when it comes
// back it gets a share again. Nothing is lost over it.
func TestPersistersShareAndTakeOver(t *testing.T) {
	beside(t)
	w := newArchiveWorld(t)
	persist := w.roles[killPersist]
	const partitions = 4 // of migrate
	shared := func() bool {
		a, b := active(persist[0]), active(persist[1])
		return a > 0 && b > 0 && a+b == partitions
	}
	done := tellers(t, w.nats.url(), 5, 1)
	began := time.Now()
	eventually(t, time.Minute, "both persisters have partitions", shared)
	t.Logf("shared %s after both were ready: %d and %d", time.Since(began).Round(time.Millisecond), active(persist[0]),
		active(persist[1]))
	for round := range min(kills(t, 1), 4) {
		dies, stays := persist[round%2], persist[1-round%2]
		<-time.After(time.Second)
		killed := time.Now()
		dies.kill()
		eventually(t, time.Minute, "the other has all partitions", func() bool { return active(stays) == partitions })
		took := time.Since(killed)
		eventually(t, time.Minute, "the other has caught up", func() bool {
			left, err := pending(t.Context(), w.nats.url(), w.dsn)
			return err == nil && left < 200
		})
		caught := time.Since(killed)
		dies.start()
		back := time.Now()
		eventually(t, time.Minute, "both have partitions again", shared)
		t.Logf("kill %d: taken over after %s, caught up after %s; shared again %s after the start", round+1,
			took.Round(time.Millisecond), caught.Round(time.Millisecond), time.Since(back).Round(time.Millisecond))
	}
	told := done()
	eventually(t, time.Minute, "the persisters have caught up", func() bool {
		left, err := pending(t.Context(), w.nats.url(), w.dsn)
		return err == nil && left == 0
	})
	for _, complaint := range judgeArchive(readLog(t, w.nats.url()), readArchive(t, w.dsn), told) {
		t.Error(complaint)
	}
}
