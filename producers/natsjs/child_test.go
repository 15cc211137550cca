package natsjs_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

func kid(run string) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: run} }

// Of a spawn and a beginning by itself the log takes exactly one: an append that was based on a head from before the
// spawn is refused, and a run that has packs is nobody's child.
func TestAdoptIsACompareAndSetOnTheRun(t *testing.T) {
	t.Run("single", func(t *testing.T) {
		_, l := open(t)
		adoptOrBegin(t, 60, l, l)
	})
	t.Run("replicas", func(t *testing.T) {
		c := testkit.NATSCluster(t)
		var logs [2]*natsjs.Log
		for i := range logs {
			l, err := natsjs.Open(t.Context(), c.Dial(t))
			if err != nil {
				t.Fatal(err)
			}
			logs[i] = l
		}
		adoptOrBegin(t, 30, logs[0], logs[1])
	})
}

// adoptOrBegin lets one process spawn children while another one begins runs of their ids.
func adoptOrBegin(t *testing.T, rounds int, spawns, l *natsjs.Log) {
	adopted, began := 0, 0
	for round := range rounds {
		run := kid(fmt.Sprint("kid_", round))
		before, err := l.Head(t.Context(), run, "")
		if err != nil {
			t.Fatal(err)
		}
		pack := schema.Pack{Key: run, First: 1, Count: 1, Body: []byte("{}\n"),
			Head: schema.Head{Last: 1, LastID: "e", Day: "20260101"}, Writer: "w"}
		var wg sync.WaitGroup
		var appended error
		wg.Go(func() {
			for range round % 5 { // so that either may be first
				_, _ = l.Head(t.Context(), run, "")
			}
			_, appended = l.Append(t.Context(), &pack, before.Stored)
		})
		for _, root := range []string{"run_1", "run_1", "run_2"} {
			wg.Go(func() {
				if err := spawns.Adopt(t.Context(), kid(root), run.Run); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		after, err := l.Head(t.Context(), run, "")
		switch {
		case err != nil:
			t.Fatal(err)
		case appended == nil && after.HasEvents() && after.Root == "":
			began++
		case errors.Is(appended, producers.ErrConflict) && !after.HasEvents() &&
			(after.Root == "run_1" || after.Root == "run_2"):
			adopted++
		default:
			t.Fatalf("round %d: %v, then %+v", round, appended, after)
		}
	}
	t.Logf("%d times adopted, %d times begun", adopted, began)
}

// What is said again takes no message, until it is old; the last root counts; and packs after it are read.
func TestAdoptAgain(t *testing.T) {
	k, l := open(t)
	run := kid("kid")
	messages := func() (n uint64) {
		for p := range k.Partitions {
			s, err := k.JS.Stream(t.Context(), natskit.StreamName(p))
			if err != nil {
				t.Fatal(err)
			}
			n += s.CachedInfo().State.Msgs
		}
		return n
	}
	for i, step := range []struct {
		root string
		want uint64
	}{{"run_1", 1}, {"run_1", 1}, {"run_2", 2}, {"run_2", 2}, {"run_1", 3}} {
		if err := l.Adopt(t.Context(), kid(step.root), run.Run); err != nil {
			t.Fatal(err)
		}
		head, err := l.Head(t.Context(), run, "")
		if err != nil || head.Root != step.root || time.Since(time.UnixMilli(head.RootAt)) > time.Minute ||
			messages() != step.want {
			t.Fatalf("step %d: %+v, %v, %d messages", i, head, err, messages())
		}
	}
	head, _ := l.Head(t.Context(), run, "")
	pack := schema.Pack{Key: run, First: 1, Count: 1, Body: []byte("{}\n"),
		Head: schema.Head{Last: 1, LastID: "e", Day: "20260101"}, Writer: "w"}
	if _, err := l.Append(t.Context(), &pack, head.Stored); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range l.Since(t.Context(), run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if head, err := l.Head(t.Context(), run, ""); err != nil || head.Last != 1 || head.Root != "" || n != 1 {
		t.Errorf("%+v, %v, %d packs", head, err, n)
	}
	if err := l.Adopt(t.Context(), kid("run_1"), run.Run); err != nil || messages() != 4 {
		t.Errorf("%v, %d messages", err, messages())
	}
}

// A publisher that was opened on a child's id writes the child's lane in its root's log, also one that had the id
// before; the spawn itself may come from a publisher.
func TestPublisherOfAChild(t *testing.T) {
	k, l := open(t)
	other, err := natsjs.Open(t.Context(), k.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	publisher := func(l *natsjs.Log, run string) *producers.Publisher {
		p, err := producers.New(producers.Config{Log: l, Key: kid(run)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close(t.Context()) })
		return p
	}
	root := publisher(l, "root")
	spawn := schema.Event{Type: schema.TypeChildSpawn, Payload: []byte(`{"child_id":"kid"}`)}
	if _, err := root.Append(t.Context(), text("", "a"), spawn); err != nil {
		t.Fatal(err)
	}
	first := publisher(other, "kid")
	if r, err := first.Append(t.Context(), text("", "b"), text("below", "c"), text("", "d")); err != nil ||
		r.First != 3 || r.Last != 5 {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := root.Append(t.Context(), text("", "e")); err != nil {
		t.Fatal(err)
	}
	if r, err := first.Append(t.Context(), text("", "f")); err != nil || r.First != 7 {
		t.Fatalf("%+v %v", r, err)
	}
	// Another process takes the child over, as it would a run of its own.
	if _, err := publisher(l, "kid").Append(t.Context(), text("", "g")); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Append(t.Context(), text("", "ghost")); !errors.Is(err, producers.ErrFenced) {
		t.Errorf("%v", err)
	}
	if head, err := l.Head(t.Context(), kid("kid"), ""); err != nil || head.HasEvents() || head.Root != "root" {
		t.Errorf("%+v %v", head, err)
	}
	lanes := ""
	for p, err := range l.Since(t.Context(), kid("root"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		for r := range p.Records(0) {
			lanes += string(r.Child) + " "
		}
	}
	if lanes != "  kid below kid  kid kid " {
		t.Errorf("lanes %q", lanes)
	}
}

// What was said long ago is said again when it is needed, before it leaves the log's window.
func TestChildOutlivesTheWindow(t *testing.T) {
	k, l := open(t)
	if err := l.Adopt(t.Context(), kid("root"), "kid"); err != nil {
		t.Fatal(err)
	}
	l.SetChildAgain(time.Nanosecond)
	stream, err := k.JS.Stream(t.Context(), natskit.StreamName(schema.Partition("kid", k.Partitions)))
	if err != nil {
		t.Fatal(err)
	}
	old, _ := l.Head(t.Context(), kid("kid"), "") // says it anew
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(old.Stored+1)); err != nil {
		t.Fatal(err)
	}
	if head, err := l.Head(t.Context(), kid("kid"), ""); err != nil || head.Root != "root" || head.Stored <= old.Stored {
		t.Errorf("%+v %v", head, err)
	}
}
