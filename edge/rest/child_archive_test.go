package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// shelved is an archive that has at once what is stored, and can be away.
type shelved struct {
	*persistertest.Memory
	away atomic.Bool
}

var errAway = errors.New("the archive is away")

func (s *shelved) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	if s.away.Load() {
		return schema.Head{}, errAway
	}
	return s.Memory.Head(ctx, key, lane)
}

func (s *shelved) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	if s.away.Load() {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, errAway) }
	}
	return s.Memory.Packs(ctx, key, after, through)
}

func (s *shelved) Parent(ctx context.Context, tenant, child string) (string, error) {
	if s.away.Load() {
		return "", errAway
	}
	return s.Memory.Parent(ctx, tenant, child)
}

// shelving stores in the archive what the log takes.
type shelving struct {
	producers.Log
	t testing.TB
	s *shelved
}

func (l shelving) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	at, err := l.Log.Append(ctx, p, after)
	if err != nil || l.s.away.Load() {
		return at, err
	}
	q := *p
	q.Head = p.Head
	q.Head.Stored = at
	persistertest.Put(l.t, l.s.Memory, q)
	return at, nil
}

func archivedNode(t testing.TB, k *testkit.Server, s *shelved) *edgetest.House {
	t.Helper()
	return nodeWith(t, k, &gatedLog{}, s, func(c *edge.Config) { c.Catalog, c.Protocols = s, edgetest.Speak(native.Dialect{}) })
}

// With an archive a child's id is what it is without: also while the archive is away, and when the log's window has
// passed over the root's beginning.
func TestChildWithArchive(t *testing.T) {
	k := testkit.NATS(t)
	s := &shelved{Memory: persistertest.NewMemory()}
	a, b := archivedNode(t, k, s), archivedNode(t, k, s)
	a.Must("root", schema.TypeRunLifecycle, `{"state":"running"}`)
	a.Must("old", schema.TypeTextDelta, `{"text":"o1"}`)
	a.Spawn("root", "kid")
	b.Must("kid", schema.TypeTextDelta, `{"text":"k1"}`)

	s.away.Store(true)
	a.Spawn("root", "late") // does not wait for it
	b.Must("late", schema.TypeTextDelta, `{"text":"l1"}`)
	a.Must("kid", schema.TypeTextDelta, `{"text":"k2"}`)
	if got := strings.Join(toldBy(linesOf(b, "kid")), ","); got != "text.delta k1,text.delta k2" {
		t.Error(got)
	}
	if got := strings.Join(toldBy(linesOf(a, "late")), ","); got != "text.delta l1" {
		t.Error(got)
	}
	s.away.Store(false)

	passes := func(run string) { // the log's window passes over what it has under an id
		t.Helper()
		of := natskit.RunAddress{Key: edgetest.RunOf(run), Partitions: k.Partitions}
		reply, err := k.Conn.RequestWithContext(t.Context(), "$JS.API.STREAM.PURGE."+of.Stream(),
			fmt.Appendf(nil, `{"filter":%q}`, of.Filter()))
		if err != nil || !bytes.Contains(reply.Data, []byte(`"success":true`)) {
			t.Fatal(err)
		}
	}
	// A run that has begun by itself: its id stays its own.
	passes("old")
	b.Spawn("root", "old")
	if got := a.Must("old", schema.TypeTextDelta, `{"text":"o2"}`); got.Body != `{"first_seq":2,"last_seq":2}`+"\n" {
		t.Error(got.Body)
	}
	if got := strings.Join(toldBy(linesOf(b, "old")), ","); got != "text.delta o1,text.delta o2" {
		t.Error(got)
	}
	// A child that has spoken stays its root's while that goes on, and its id is free when that has ended.
	b.Must("root", schema.TypeTextDelta, `{"text":"r"}`) // the archive has all by now
	passes("kid")
	if got := a.Must("kid", schema.TypeTextDelta, `{"text":"k3"}`); !strings.HasSuffix(got.Body,
		`"root_run_id":"root"}`+"\n") {
		t.Error(got.Body)
	}
	if got := strings.Join(toldBy(linesOf(b, "kid")), ","); got != "text.delta k1,text.delta k2,text.delta k3" {
		t.Error(got)
	}
	if head, err := natskit.ReadHead(t.Context(), k.Conn,
		natskit.RunAddress{Key: edgetest.RunOf("kid"), Partitions: k.Partitions}, ""); err != nil || head.Root != "root" {
		t.Errorf("the log does not say it again: %+v, %v", head, err)
	}
	a.Must("root", schema.TypeRunLifecycle, `{"state":"done"}`)
	b.Say("kid", schema.TypeTextDelta, `{"text":"late"}`).Expect(t, 409, "RUN-ENDED")
	passes("kid")
	if got := b.Must("kid", schema.TypeTextDelta, `{"text":"anew"}`); got.Body != `{"first_seq":1,"last_seq":1}`+"\n" {
		t.Error(got.Body)
	}
}
