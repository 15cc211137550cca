package natsjs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
)

const rosterPartitions = 8

// quick are times that let a test be short, and are above what a busy machine delays.
var quick = natsjs.RosterConfig{Beat: 300 * time.Millisecond, TTL: 2 * time.Second, Alone: time.Minute}

func rosterLog(t *testing.T) *testkit.Server {
	t.Helper()
	s := testkit.NATS(t)
	for p := range s.Partitions {
		if err := s.JS.DeleteStream(t.Context(), natskit.StreamName(p)); err != nil {
			t.Fatal(err)
		}
	}
	s.Partitions = rosterPartitions
	declare(t, s, rosterPartitions)
	return s
}

// declare makes streams that have just been deleted: the server may still be at that, and refuses until then.
func declare(t *testing.T, s *testkit.Server, partitions int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(50 * time.Millisecond) {
		err := natskit.Declare(t.Context(), s.JS, natskit.Layout{Partitions: partitions})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// member is a process that persists, as the log sees it: a connection, a roster, its queues.
type member struct {
	queues []persister.Queue
	leave  func() // in order
	kill   func() // the connection is gone, and with it everything that could be said
}

func join(t *testing.T, s *testkit.Server, cfg natsjs.RosterConfig) *member {
	t.Helper()
	return joinOver(t, s.Dial(t), cfg)
}

func joinOver(t *testing.T, nc *nats.Conn, cfg natsjs.RosterConfig) *member {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r, err := natsjs.OpenRoster(t.Context(), js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{}
	if m.queues, err = natsjs.Queues(t.Context(), js, natsjs.Config{Roster: r, Wait: 200 * time.Millisecond, AckWait: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	m.leave = sync.OnceFunc(func() { cancel(); <-done })
	m.kill = func() { nc.Close(); m.leave() }
	t.Cleanup(m.leave)
	return m
}

// owns gives how many partitions each member holds, and whether each partition has exactly one holder.
func owns(members ...*member) (loads []int, exact bool) {
	exact = true
	loads = make([]int, len(members))
	for p := range rosterPartitions {
		holders := 0
		for i, m := range members {
			if m.queues[p].(persister.Shared).Ours() {
				holders++
				loads[i]++
			}
		}
		exact = exact && holders == 1
	}
	slices.Sort(loads)
	return loads, exact
}

// settles waits until the members hold so many each, and gives how long it took.
func settles(t *testing.T, want string, members ...*member) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		loads, exact := owns(members...)
		if exact && fmt.Sprint(loads) == want {
			return time.Since(begin)
		}
		if time.Since(begin) > 45*time.Second {
			t.Fatalf("loads are %v, want %s; each exactly once: %v", loads, want, exact)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestRosterShares: three processes share eight partitions evenly; what a dead one held is taken over
// when its lease ends, what a leaving one held at once, and a new one gets its part.
func TestRosterShares(t *testing.T) {
	s := rosterLog(t)
	cfg := natsjs.RosterConfig{Beat: time.Second, TTL: 8 * time.Second} // far enough from what a busy machine delays
	a, b, c := join(t, s, cfg), join(t, s, cfg), join(t, s, cfg)
	settles(t, "[2 3 3]", a, b, c)
	a.kill()
	if took := settles(t, "[4 4]", b, c); took > cfg.TTL+2*cfg.Beat+6*time.Second {
		t.Errorf("a dead member's partitions were away for %v", took)
	}
	d := join(t, s, cfg)
	settles(t, "[2 3 3]", b, c, d)
	b.leave()
	if took := settles(t, "[4 4]", c, d); took > cfg.TTL/2 {
		t.Errorf("a member that left in order was missed for %v", took)
	}
	c.leave()
	settles(t, "[8]", d)
}

// TestRosterWithoutBucket: who holds a partition keeps it while nobody can be asked, and in the end
// everything is fetched all the same.
func TestRosterWithoutBucket(t *testing.T) {
	s := rosterLog(t)
	cfg := quick
	cfg.TTL, cfg.Alone = 4*time.Second, 5*time.Second
	a, b := join(t, s, cfg), join(t, s, cfg)
	for { // until another stream has the bucket's subjects, and so there can be no bucket
		settles(t, "[4 4]", a, b)
		if err := s.JS.DeleteKeyValue(t.Context(), natsjs.RosterBucket); err != nil {
			t.Fatal(err)
		}
		if _, err := s.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "BLOCK", Subjects: []string{"$KV." + natsjs.RosterBucket + ".>"}}); err == nil {
			break
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for { // each fetches everything in the end; until then nobody has lost anything
		loads, _ := owns(a, b)
		if loads[0] == rosterPartitions && loads[1] == rosterPartitions {
			break
		}
		if loads[0] < 4 || time.Now().After(deadline) {
			t.Fatalf("loads are %v", loads)
		}
		<-time.After(20 * time.Millisecond)
	}
	if err := s.JS.DeleteStream(t.Context(), "BLOCK"); err != nil {
		t.Fatal(err)
	}
	settles(t, "[4 4]", a, b)
}

// TestRosterAtRandom: members come, leave and die. No partition is with two for longer than a lease, and
// none is with nobody for longer than a lease and what follows it.
func TestRosterAtRandom(t *testing.T) {
	s := rosterLog(t)
	const most = 5
	alive := []*member{join(t, s, quick)}
	settles(t, "[8]", alive[0])
	next := time.Now().Add(300 * time.Millisecond)
	var double, none [rosterPartitions]time.Time // since when
	var longest, missed time.Duration
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); {
		if time.Now().After(next) {
			next = time.Now().Add(time.Duration(rand.IntN(900)) * time.Millisecond)
			switch at := rand.IntN(len(alive)); {
			case len(alive) < most && rand.IntN(2) == 0 || len(alive) == 1:
				alive = append(alive, join(t, s, quick))
			case rand.IntN(2) == 0:
				alive[at].kill()
				alive = slices.Delete(alive, at, at+1)
			default:
				alive[at].leave()
				alive = slices.Delete(alive, at, at+1)
			}
		}
		for p := range rosterPartitions {
			n := 0
			for _, m := range alive {
				if m.queues[p].(persister.Shared).Ours() {
					n++
				}
			}
			longest = max(longest, lasts(&double[p], n > 1))
			missed = max(missed, lasts(&none[p], n == 0))
		}
		<-time.After(3 * time.Millisecond)
	}
	t.Logf("with two: %v at most; with nobody: %v at most", longest, missed)
	const busy = 3 * time.Second // the machine may be
	if longest > quick.TTL+busy {
		t.Errorf("a partition was with two for %v, a lease is %v", longest, quick.TTL)
	}
	if limit := quick.TTL + 4*quick.Beat + busy; missed > limit {
		t.Errorf("a partition was with nobody for %v, more than %v", missed, limit)
	}
	want := make([]int, 0, most)
	for i := range alive {
		want = append(want, (rosterPartitions+i)/len(alive))
	}
	settles(t, fmt.Sprint(want), alive...)
}

func lasts(since *time.Time, is bool) time.Duration {
	if !is {
		*since = time.Time{}
		return 0
	}
	if since.IsZero() {
		*since = time.Now()
	}
	return time.Since(*since)
}

// TestRosterHandsOverInOrder: what a member has fetched is stored before the next one fetches.
func TestRosterHandsOverInOrder(t *testing.T) {
	s := rosterLog(t)
	cfg := quick
	cfg.TTL = 20 * time.Second // until then the next one waits
	a := join(t, s, cfg)
	settles(t, "[8]", a)
	fill(t, s, 20)
	held, err := a.queues[0].Fetch(t.Context(), persister.Limit{Messages: 5, Bytes: 1 << 20})
	if err != nil || len(held) != 5 {
		t.Fatalf("%d messages, %v", len(held), err)
	}
	members := []*member{a}
	for { // until another one is to have this partition
		members = append(members, join(t, s, cfg))
		for deadline := time.Now().Add(2 * time.Second); a.queues[0].(persister.Shared).Ours() && time.Now().Before(deadline); {
			<-time.After(5 * time.Millisecond)
		}
		if !a.queues[0].(persister.Shared).Ours() {
			break
		}
	}
	if got, err := a.queues[0].Fetch(t.Context(), wide); err != nil || len(got) != 0 {
		t.Fatalf("who hands over still fetches: %d messages, %v", len(got), err)
	}
	for _, m := range members[1:] {
		if m.queues[0].(persister.Shared).Ours() {
			t.Fatal("the next one did not wait for what is being stored")
		}
	}
	if err := a.queues[0].Ack(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	var rest string
	for deadline := time.Now().Add(20 * time.Second); rest == "" && time.Now().Before(deadline); {
		for _, m := range members[1:] {
			got, err := m.queues[0].Fetch(t.Context(), wide)
			if err != nil {
				t.Fatal(err)
			}
			rest += positions(got)
		}
	}
	if rest != "6 7 8 9 10 11 12 13 14 15 16 17 18 19 20" {
		t.Errorf("the next one got %q", rest)
	}
}

// TestRosterLeavesWhatItTookLast: a member that is stopped in the middle of a beat, whose answers it never heard, gives
// its partitions back all the same: nobody waits for the end of its leases.
func TestRosterLeavesWhatItTookLast(t *testing.T) {
	s := rosterLog(t)
	cfg := natsjs.RosterConfig{Beat: 5 * time.Second, TTL: 60 * time.Second}
	a, b := join(t, s, cfg), join(t, s, cfg)
	settles(t, "[4 4]", a, b)
	kv, err := s.JS.KeyValue(t.Context(), natsjs.RosterBucket)
	if err != nil {
		t.Fatal(err)
	}
	renewed := 0
	for p := range rosterPartitions { // as beats do
		key := fmt.Sprintf("lease.%d", p)
		e, err := kv.Get(t.Context(), key)
		if err == nil {
			_, err = kv.Update(t.Context(), key, e.Value(), e.Revision())
		}
		if err != nil {
			t.Fatal(err)
		}
		renewed++
	}
	a.leave()
	if took := settles(t, "[8]", b); took > cfg.TTL/2 {
		t.Errorf("%d leases were missed for %v", renewed, took)
	}
}
