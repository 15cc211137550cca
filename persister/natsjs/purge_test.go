package natsjs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

const purgeBucket = natskit.KeysBucket

func publishPacks(t *testing.T, s *testkit.Server, packs ...schema.Pack) {
	t.Helper()
	for _, p := range packs {
		m := &nats.Msg{Subject: schema.Subject(p.Key, p.Child, s.Partitions), Header: nats.Header(p.Headers()), Data: p.Body}
		if _, err := s.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func purger(t *testing.T, s *testkit.Server, bucket string) *natsjs.Purger {
	t.Helper()
	p, err := natsjs.NewPurger(t.Context(), s.Dial(t), bucket)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPurge: of one run, on all its lanes, up to a seq or whole, with its keys and nobody else's.
func TestPurge(t *testing.T) {
	s := testkit.NATS(t)
	kv, err := s.JS.KeyValue(t.Context(), purgeBucket)
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	of := func(tenant, run string, n int) (packs []schema.Pack) {
		w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: run}, "20260105")
		for i := range n {
			child := ""
			if i%2 == 1 {
				child = "helper"
			}
			p := w.Texts(child, 2)
			keys++
			p.Batch = fmt.Sprintf("%032x", keys)
			if _, err := kv.Create(t.Context(), p.Batch, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			packs = append(packs, p)
		}
		publishPacks(t, s, packs...)
		return packs
	}
	packs := of("acme", "run_1", 450) // more than two pages
	near := [][]schema.Pack{of("acme", "run_10", 3), of("acme_2", "run_1", 3), of("acme", "helper", 3)}
	p := purger(t, s, purgeBucket)
	key := packs[0].Key
	for _, step := range []struct {
		through        schema.Seq
		messages, keys int
		holds          bool
	}{
		{1, 0, 0, true}, // it is within a pack
		{2, 1, 1, true}, {3, 0, 0, true}, {801, 399, 399, true}, {801, 0, 0, true}, {schema.MaxSeq, 50, 50, false},
		{schema.MaxSeq, 0, 0, false},
	} {
		messages, ids, err := p.Purge(t.Context(), key, step.through)
		if err != nil || messages != step.messages || ids != step.keys {
			t.Fatalf("through %d: %d messages, %d keys, %v", step.through, messages, ids, err)
		}
		holding, err := p.Holding(t.Context(),
			[]schema.RunKey{key, near[0][0].Key, near[1][0].Key, {Tenant: "beta", Run: "run_1"}})
		if err != nil || slices.Contains(holding, key) != step.holds ||
			len(slices.DeleteFunc(holding, func(k schema.RunKey) bool { return k == key })) != 2 {
			t.Fatalf("through %d: the log has %v, %v", step.through, holding, err)
		}
		head, err := p.Head(t.Context(), key)
		if err != nil || head.HasEvents() != step.holds {
			t.Fatalf("through %d: %+v, %v", step.through, head, err)
		}
	}
	for _, of := range near {
		if head, err := p.Head(t.Context(), of[0].Key); err != nil || head.Last != of[2].Last() {
			t.Fatalf("%s: %+v, %v", of[0].Key, head, err)
		}
		for _, pack := range of {
			if _, err := kv.Get(t.Context(), pack.Batch); err != nil {
				t.Fatalf("key of %s: %v", pack.Key, err)
			}
		}
	}
	if left, err := kv.Status(t.Context()); err != nil || left.Values() != 9 {
		t.Fatalf("%d keys are left, %v", left.Values(), err)
	}
}

// TestPurgeReleasesChildren: with a run its records of children are removed, which write to it or were spawned there,
// and nothing of others.
func TestPurgeReleasesChildren(t *testing.T) {
	s := testkit.NATS(t)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "root"}, "20260105")
	publishPacks(t, s, w.Texts("", 1), w.Texts("speaks", 1),
		w.Pack("", persistertest.Event(schema.TypeChildSpawn, `{"child_id":"silent"}`)))
	for _, of := range [][2]string{{"speaks", "root"}, {"silent", "root"}, {"moved", "root"}, {"moved", "other"},
		{"theirs", "other"}} {
		if _, err := s.JS.Publish(t.Context(),
			schema.ChildSubject(schema.RunKey{Tenant: "acme", Run: of[0]}, of[1], s.Partitions), nil); err != nil {
			t.Fatal(err)
		}
	}
	p := purger(t, s, "")
	root := func(child string) string {
		t.Helper()
		head, err := p.Head(t.Context(), schema.RunKey{Tenant: "acme", Run: child})
		if err != nil || head.HasEvents() {
			t.Fatalf("%s: %+v, %v", child, head, err)
		}
		return head.Root
	}
	if n, _, err := p.Purge(t.Context(), w.Key, 2); err != nil || n != 2 || root("speaks") != "root" ||
		root("silent") != "root" {
		t.Fatalf("a part: %d messages, %v", n, err)
	}
	publishPacks(t, s, w.Texts("speaks", 1))
	if n, _, err := p.Purge(t.Context(), w.Key, schema.MaxSeq); err != nil || n != 4 {
		t.Fatalf("%d messages, %v", n, err)
	}
	for child, want := range map[string]string{"speaks": "", "silent": "", "moved": "other", "theirs": "other"} {
		if got := root(child); got != want {
			t.Errorf("%s is a child of %q", child, got)
		}
	}
	if ids, err := p.RunsOf(t.Context(), "acme"); err != nil || !slices.Equal(ids, []string{"moved", "theirs"}) {
		t.Errorf("left: %v, %v", ids, err)
	}
}

// TestPurgeHostile: messages that are no packs go with their run, and keys that they name are not believed.
// TestPurgeBlobs: a run's blobs go with it, unless it goes on behind; a run that has nothing else is found by them. A
// log of before has no stream for them, and is purged all the same.
func TestPurgeBlobs(t *testing.T) {
	s := testkit.NATS(t)
	blobs, err := natskit.NewBlobs(s.Conn)
	if err != nil {
		t.Fatal(err)
	}
	p := purger(t, s, purgeBucket)
	has := func(key schema.RunKey) int {
		t.Helper()
		list, err := blobs.List(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	logged, alone := schema.RunKey{Tenant: "acme", Run: "run_1"}, schema.RunKey{Tenant: "acme", Run: "run_2"}
	w := persistertest.NewWriter(logged, "20260105")
	publishPacks(t, s, w.Texts("", 2), w.Texts("", 2))
	for _, key := range []schema.RunKey{logged, alone} {
		if _, _, err := blobs.Put(t.Context(), key, "a/b",
			func(yield func([]byte, error) bool) { yield([]byte("x"), nil) }); err != nil {
			t.Fatal(err)
		}
	}
	both := []schema.RunKey{logged, alone, {Tenant: "acme", Run: "none"}}
	if holding, err := p.Holding(t.Context(), both); err != nil || len(holding) != 2 {
		t.Errorf("holding %v: %v", holding, err)
	}
	if runs, err := p.RunsOf(t.Context(), "acme"); err != nil || !slices.Equal(runs, []string{"run_1", "run_2"}) {
		t.Errorf("runs %v: %v", runs, err)
	}
	for _, step := range []struct {
		key            schema.RunKey
		through        schema.Seq
		messages, left int
	}{{logged, 2, 1, 1}, {alone, 4, 2, 0}, {logged, 4, 3, 0}, {logged, schema.MaxSeq, 0, 0}} {
		// a blob and its mark are two
		if n, _, err := p.Purge(t.Context(), step.key, step.through); err != nil || n != step.messages ||
			has(step.key) != step.left {
			t.Errorf("%s through %d: %d messages, %d blobs are left: %v", step.key, step.through, n, has(step.key), err)
		}
	}
	if err := s.JS.DeleteStream(t.Context(), natskit.BlobStream); err != nil {
		t.Fatal(err)
	}
	publishPacks(t, s, persistertest.NewWriter(logged, "20260105").Texts("", 2))
	holding, err := p.Holding(t.Context(), both)
	if err != nil || len(holding) != 1 {
		t.Errorf("holding %v: %v", holding, err)
	}
	if runs, err := p.RunsOf(t.Context(), "acme"); err != nil || len(runs) != 1 {
		t.Errorf("runs %v: %v", runs, err)
	}
	if n, _, err := p.Purge(t.Context(), logged, schema.MaxSeq); err != nil || n != 1 {
		t.Errorf("%d messages: %v", n, err)
	}
}

func TestPurgeHostile(t *testing.T) {
	s := testkit.NATS(t)
	kv, err := s.JS.KeyValue(t.Context(), purgeBucket)
	if err == nil {
		_, err = kv.Create(t.Context(), "another", []byte("{}"))
	}
	if err != nil {
		t.Fatal(err)
	}
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "r"}, "20260105")
	for _, batch := range []string{">", "*", "a.b", "$KV.x", ""} {
		p := w.Texts("", 1)
		p.Batch = batch
		publishPacks(t, s, p)
	}
	if _, err := s.JS.Publish(t.Context(), schema.Subject(w.Key, "", s.Partitions), []byte("no pack")); err != nil {
		t.Fatal(err)
	}
	p := purger(t, s, purgeBucket)
	if n, keys, err := p.Purge(t.Context(), w.Key, schema.MaxSeq); err != nil || n != 6 || keys != 0 {
		t.Fatalf("%d messages, %d keys, %v", n, keys, err)
	}
	if _, err := kv.Get(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
}

// TestRunsOf finds the runs of one tenant in all partitions; a bucket that was never made is empty.
func TestRunsOf(t *testing.T) {
	s := testkit.NATS(t)
	var want []string
	for i := range 900 { // more than one request for Holding
		id := fmt.Sprintf("run_%03d", i)
		want = append(want, id)
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: id}, "20260105")
		p := w.Texts("", 1)
		p.Batch = fmt.Sprintf("%032x", i)
		publishPacks(t, s, p)
	}
	publishPacks(t, s, persistertest.NewWriter(schema.RunKey{Tenant: "acme_2", Run: "other"}, "20260105").Texts("", 1))
	p := purger(t, s, purgeBucket)
	got, err := p.RunsOf(t.Context(), "acme")
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d runs, %v", len(got), err)
	}
	var keys []schema.RunKey
	for i := range 2000 {
		keys = append(keys, schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%03d", i)})
	}
	if holding, err := p.Holding(t.Context(), keys); err != nil || len(holding) != 900 {
		t.Fatalf("%d, %v", len(holding), err)
	}
	for _, id := range want[:3] {
		if n, ids, err := p.Purge(t.Context(), schema.RunKey{Tenant: "acme", Run: id}, schema.MaxSeq); err != nil ||
			n != 1 || ids != 0 {
			t.Fatal(n, ids, err)
		}
	}
	if got, err = p.RunsOf(t.Context(), "acme"); err != nil || !slices.Equal(got, want[3:]) {
		t.Fatalf("%d runs, %v", len(got), err)
	}
	if got, err = p.RunsOf(t.Context(), "nobody"); err != nil || len(got) > 0 {
		t.Fatal(got, err)
	}
}
