//go:build !race

package live_test

import (
	"fmt"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/schema"
)

// A watched run with one watcher is small: its events are counted, as an edge gets them, and so is its side of the
// connection. It is few objects, for the collector looks at each; those of its writer and of the client's side are
// counted too.
func TestWatchedRunsAreSmall(t *testing.T) {
	const runs, most, mostObjects = 1000, 8 << 10, 80
	h := edgetest.NewHouse(t)
	h.Log.Copies.Store(true)
	store := func(kind string, from, to int) {
		for i := range runs {
			for n := from; n <= to; n++ {
				run := fmt.Sprint(kind, i)
				e := schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":"%0240d"}`, n)}
				if err := e.Prepare(run); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Appender.Append(t.Context(), edgetest.RunOf(run), []schema.Event{e},
					producers.AppendOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	buf := make([]byte, 64<<10)
	var clients []edgetest.SmallConn
	watch := func(kind string) {
		store(kind, 1, 1)
		first := len(clients)
		for i := range runs {
			c := smallConn(h, "GET "+edgetest.RunsPath+"/"+fmt.Sprint(kind, i)+"/stream?detail=full")
			c.Until(buf, "id: 1\n")
			clients = append(clients, c)
		}
		store(kind, 2, 4)
		for _, c := range clients[first:] {
			c.Until(buf, "id: 4\n")
		}
		settle(h, len(clients))
	}
	watch("before") // what the first runs need once is no cost of a run
	before := edgetest.InUse()
	store("alone", 1, 4)
	log := edgetest.InUse() - before
	before = edgetest.InUse()
	objects := edgetest.CollectGarbage().HeapObjects
	watch("watched")
	objects = (edgetest.CollectGarbage().HeapObjects - objects) / runs
	each := (edgetest.InUse() - before - log - edgetest.DialCost(t, runs)) / runs
	t.Logf("%d bytes for each of %d watched runs, and %d in the log; %d objects in all", each, runs, log/runs, objects)
	if each > most {
		t.Errorf("%d bytes for each watched run, want at most %d", each, most)
	}
	if objects > mostObjects {
		t.Errorf("%d objects for each watched run, want at most %d", objects, mostObjects)
	}
	edgetest.CloseAll(clients)
}
