package blob

import (
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister/persistertest"
)

// TestCacheForgets: a run that was deleted and the next of its id may have objects of one name. What is kept of
// the first is not believed by the time at which there can be the second.
func TestCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, old := encode(t, FrameBytes, persistertest.NewWriter(key, "20260228").Texts("", 5))
		second, next := encode(t, FrameBytes, persistertest.NewWriter(key, "20260228").Texts("lane", 5))
		if old.SHA256 == next.SHA256 {
			t.Fatal("the runs are the same")
		}
		store := &lying{first}
		c := newCache(readsOf(t, store), 1<<20)
		name := Name(key, "20260228", 5)
		want := func(ix *Index) {
			t.Helper()
			o, err := c.open(t.Context(), name)
			if err != nil || o.index.SHA256 != ix.SHA256 {
				t.Fatal(o, err)
			}
		}
		want(old)
		store.data = second
		time.Sleep(4 * time.Minute)
		want(old) // it is kept
		time.Sleep(time.Minute)
		want(next)
		if c.size != int64(c.order.Front().Value.(entry).bytes()) || len(c.names) != 1 {
			t.Fatalf("%d bytes of %d objects", c.size, len(c.names))
		}
	})
}
