package producers

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"agentstream/schema"
)

// agreeing is a Log that stores nothing and accepts every pack.
type agreeing struct {
	Log
	stored uint64
}

func (l *agreeing) Head(context.Context, schema.RunKey, string) (schema.Head, error) {
	return schema.Head{}, nil
}

func (l *agreeing) Append(context.Context, *schema.Pack, uint64) (uint64, error) {
	l.stored++
	return l.stored, nil
}

// appendTo appends an event to each of n runs, in turns.
func appendTo(tb testing.TB, a *Appender, name string, n int) {
	tb.Helper()
	for i := range n {
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprint(name, i)}
		if _, err := a.Append(tb.Context(), key,
			[]schema.Event{{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"a"}`)}}, AppendOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestRemembersWithinItsMemory writes many more runs than fit. The ones that were written last are remembered.
func TestRemembersWithinItsMemory(t *testing.T) {
	a, err := NewAppender(AppenderConfig{Log: &agreeing{}})
	if err != nil {
		t.Fatal(err)
	}
	const fit = 50
	a.room = fit * runBytes * 2
	appendTo(t, a, "run_", 1000)
	held, listed := 0, 0
	for _, r := range a.runs {
		held += r.bytes
	}
	recent := &a.tenants["acme"].recent
	for r := recent.behind; r != recent; r = r.behind {
		listed++
	}
	if held != a.held || a.held > a.room || len(a.runs) < fit || len(a.runs) != listed {
		t.Errorf("%d runs hold %d bytes, counted as %d, of %d; %d are in the list", len(a.runs), held, a.held, a.room, listed)
	}
	if r := a.runs[schema.RunKey{Tenant: "acme", Run: "run_999"}]; r == nil || r.w == nil {
		t.Error("the run that was written last is not remembered")
	}
}

// TestOneTenantIsForgotten: a tenant that writes many runs pushes out its own, and none of another's.
func TestOneTenantIsForgotten(t *testing.T) {
	a, err := NewAppender(AppenderConfig{Log: &agreeing{}})
	if err != nil {
		t.Fatal(err)
	}
	a.room = 100 * runBytes
	event := []schema.Event{{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"a"}`)}}
	for i := range 20 {
		if _, err := a.Append(t.Context(), schema.RunKey{Tenant: "modest", Run: fmt.Sprint(i)}, event,
			AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	appendTo(t, a, "run_", 1000)
	if of := a.tenants["modest"]; of == nil || of.count != 20 {
		t.Errorf("of another tenant there is %+v", of)
	}
	if a.held > a.room || len(a.runs) < 80 {
		t.Errorf("%d runs hold %d bytes of %d", len(a.runs), a.held, a.room)
	}
}

// TestCountsWhatItRemembers compares what is counted for runs with the memory that they take. They are few objects, for
// the collector looks at each.
func TestCountsWhatItRemembers(t *testing.T) {
	const n, most = 20_000, 9
	a, err := NewAppender(AppenderConfig{Log: &agreeing{}})
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, a, "warm_", 100)
	before, counted := collected(), a.held
	appendTo(t, a, "run_", n)
	now := collected()
	each, count := int(now.HeapAlloc-before.HeapAlloc)/n, (a.held-counted)/n
	objects := float64(now.HeapObjects-before.HeapObjects) / n
	runtime.KeepAlive(a)
	t.Logf("%d bytes a run, counted as %d, in %.1f objects", each, count, objects)
	if each > count*5/4 || each < count/2 {
		t.Errorf("a run takes %d bytes and is counted as %d", each, count)
	}
	if objects > most {
		t.Errorf("a run is %.1f objects, want at most %d", objects, most)
	}
}

func heap() int64 { return int64(collected().HeapAlloc) }

// collected returns what the heap is after a collection.
func collected() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
