package blob

import (
	"fmt"
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
		if c.recent.Weight() != int(c.recent.Last().Value.bytes()) || len(c.names) != 1 {
			t.Fatalf("%d bytes of %d objects", c.recent.Weight(), len(c.names))
		}
	})
}

// TestOneTenantsIndexesGo: a tenant that reads many objects pushes out its own indexes, and none of another's.
func TestOneTenantsIndexesGo(t *testing.T) {
	one := &openedObject{name: "modest/20260228/run.1", index: &Index{}}
	room := 100 * one.bytes()
	c := newCache(nil, room)
	for i := range 20 {
		c.put(&openedObject{name: fmt.Sprintf("modest/20260228/run.%d", i), index: &Index{}}, time.Now())
	}
	for i := range 1000 {
		c.put(&openedObject{name: fmt.Sprintf("greedy/20260228/run.%d", i), index: &Index{}}, time.Now())
	}
	for i := range 20 {
		if c.get(fmt.Sprintf("modest/20260228/run.%d", i)) == nil {
			t.Errorf("index %d of another tenant has gone", i)
		}
	}
	if n := c.recent.Weight(); int64(n) > room || len(c.names) != c.recent.Len() || len(c.names) < 90 {
		t.Errorf("%d indexes hold %d bytes of %d", len(c.names), n, room)
	}
}
