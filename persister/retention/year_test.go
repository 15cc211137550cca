package retention_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// yearSize is days, runs a day and events a run: long enough for every kind of run to expire, or what
// AGENTSTREAM_YEAR says ("365x500x20" is the whole form).
func yearSize(t *testing.T) (n [3]int) {
	n = [3]int{110, 3, 6}
	parts := strings.Split(os.Getenv("AGENTSTREAM_YEAR"), "x")
	for i := range n {
		if len(parts) != len(n) {
			break
		}
		v, err := strconv.Atoi(parts[i])
		if err != nil || v < 1 {
			t.Fatalf("AGENTSTREAM_YEAR %q", os.Getenv("AGENTSTREAM_YEAR"))
		}
		n[i] = v
	}
	return n
}

// modelRun is what must be true of one run.
type modelRun struct {
	writer *persistertest.Writer
	state  schema.RunState
	last   time.Time
	packs  []schema.Pack // after what has expired
	gone   bool          // expired whole, and not gone on since
	blob   bool
}

// year is the model beside the world.
type year struct {
	*world
	rnd   *rand.Rand
	size  [3]int
	runs  []*modelRun
	holds map[schema.RunKey]bool
	keep  map[string][2]int // days for done, and for error and aborted; -1 never
}

var yearTenants = []string{"acme", "beta", "brief", "never", "frozen"}

func newYear(t *testing.T, s store) *year {
	y := &year{world: newWorld(t, s), rnd: rand.New(rand.NewPCG(1, 2)), size: yearSize(t),
		holds: make(map[schema.RunKey]bool),
		keep:  map[string][2]int{"acme": {90, 30}, "beta": {90, 30}, "brief": {10, 2}, "never": {-1, 30}, "frozen": {90, 30}}}
	for tenant, o := range map[string]persister.Override{
		"brief": {Completed: ptr(10), Ended: ptr(2)}, "never": {Completed: ptr(persister.KeepForEver)}} {
		if err := s.SetOverride(t.Context(), tenant, o); err != nil {
			t.Fatal(err)
		}
	}
	return y
}

// begin makes the runs of a day. Every sixth goes on over midnight, every ninth does not end.
func (y *year) begin(day int) (runs []*modelRun) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(days(day))
	for i := range y.size[1] {
		at := start.Add(time.Duration(y.rnd.IntN(23*3600)) * time.Second)
		if i%6 == 0 {
			at = start.Add(24*time.Hour - 3*time.Second)
		}
		state := []schema.RunState{schema.StateDone, schema.StateDone, schema.StateError, schema.StateAborted}[y.rnd.IntN(4)]
		if y.rnd.IntN(9) == 0 {
			state = ""
		}
		tenant := yearTenants[y.rnd.IntN(len(yearTenants))]
		wr, p := y.run(tenant, fmt.Sprintf("run_%03d_%d", day, i), at, y.size[2], state)
		runs = append(runs, &modelRun{writer: wr, state: state, last: at.Add(time.Duration(y.size[2]) * time.Second),
			packs: []schema.Pack{p}})
	}
	return runs
}

// holdSomething places and lifts holds through the year.
func (y *year) holdSomething(day int) {
	set := func(key schema.RunKey, on bool) {
		var err error
		if on {
			_, err = y.store.AddHold(y.Context(), key, "case")
		} else {
			_, err = y.store.RemoveHold(y.Context(), key)
		}
		if err != nil {
			y.Fatal(err)
		}
		y.holds[key] = on
	}
	switch {
	case day == y.size[0]/6:
		set(schema.RunKey{Tenant: "frozen"}, true)
	case day == y.size[0]*2/3:
		set(schema.RunKey{Tenant: "frozen"}, false)
	case day%20 == 5:
		r := y.runs[y.rnd.IntN(len(y.runs))]
		set(r.writer.Key, !y.holds[r.writer.Key])
	}
}

// goOn reopens some runs, of which some have expired.
func (y *year) goOn(day int) {
	for range 1 + y.size[1]/20 {
		r := y.runs[y.rnd.IntN(len(y.runs))]
		if day%3 != 0 || !r.state.Final() {
			continue
		}
		r.state = []schema.RunState{schema.StateDone, schema.StateError, ""}[y.rnd.IntN(3)]
		p := followUp(r.writer, y.now.Add(-time.Hour), r.state)
		r.last = y.now.Add(-time.Hour).Add(time.Duration(p.Count) * time.Second)
		r.packs, r.gone = append(r.packs, p), false
		y.append(p)
	}
}

// expire is the promise, written down a second time.
func (y *year) expire() (gone int) {
	for _, r := range y.runs {
		key := r.writer.Key
		if r.gone || !r.state.Final() || y.holds[key] || y.holds[schema.RunKey{Tenant: key.Tenant}] {
			continue
		}
		keep := y.keep[key.Tenant][1]
		if r.state == schema.StateDone {
			keep = y.keep[key.Tenant][0]
		}
		if keep >= 0 && y.now.After(r.last.Add(days(keep))) {
			r.packs, r.gone, r.blob = nil, true, false
			gone++
		}
	}
	return gone
}

// compare holds the store, the blobs and the log against the model.
func (y *year) compare(more ...*modelRun) {
	y.Helper()
	listed := make(map[string][]string)
	blobs := 0
	kept := make(map[string]bool) // days with rows
	var gone []schema.RunKey
	for _, r := range slices.Concat(y.runs, more) {
		key := r.writer.Key
		y.wantEvents(key, r.packs...)
		head, err := y.store.Head(y.Context(), key, "")
		if err != nil || head.Last != r.writer.Head.Last {
			y.Fatalf("%s: %+v, %v", key, head, err)
		}
		if r.blob {
			blobs++
		}
		if r.gone {
			gone = append(gone, key)
			continue
		}
		kept[head.Day] = true
		listed[key.Tenant] = append(listed[key.Tenant], key.Run)
	}
	for _, tenant := range yearTenants {
		y.wantListed(tenant, listed[tenant]...)
	}
	if names := y.blobNames(); len(names) != blobs {
		y.Fatalf("%d blobs, want %d", len(names), blobs)
	}
	if holding, err := y.log.Holding(y.Context(), gone); err != nil || len(holding) > 0 {
		y.Fatalf("the log has %d expired runs, %v", len(holding), err)
	}
	for day := range y.size[0] {
		name := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(days(day)).Format("20060102")
		if _, partition, err := y.store.LiveRuns(y.Context(), name); err != nil || partition && !kept[name] {
			y.Fatalf("the empty partition of %s stands, %v", name, err)
		}
	}
}

// readers read runs all the time: none may fail, and what is always kept must always be there.
type readers struct {
	mu    sync.Mutex
	runs  []schema.Pack // first packs
	took  []time.Duration
	wrong atomic.Pointer[string]
}

func (r *readers) add(runs []*modelRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range runs {
		r.runs = append(r.runs, m.packs[0])
	}
}

func (r *readers) read(ctx context.Context, s store, rnd *rand.Rand) {
	for ctx.Err() == nil {
		r.mu.Lock()
		p := r.runs[rnd.IntN(len(r.runs))]
		r.mu.Unlock()
		began := time.Now()
		first, body, err := replay(s.Packs(ctx, p.Key, 0, schema.MaxSeq))
		took := time.Since(began)
		always := p.Key.Tenant == "never" && p.Head.State == schema.StateDone || !p.Head.State.Final()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil, first == 1 && !bytes.HasPrefix(body, p.Body), first > 1 && first <= p.Last():
			text := fmt.Sprintf("%s: %d bytes from %d: %v", p.Key, len(body), first, err)
			r.wrong.CompareAndSwap(nil, &text)
		case always && first != 1 && p.Head.State == "":
			text := fmt.Sprintf("%s has not ended and begins at %d", p.Key, first)
			r.wrong.CompareAndSwap(nil, &text)
		}
		r.mu.Lock()
		r.took = append(r.took, took)
		r.mu.Unlock()
		time.Sleep(5 * time.Millisecond) // the machine is for the others too
	}
}

func (r *readers) p99() time.Duration {
	slices.Sort(r.took)
	return r.took[len(r.took)*99/100]
}

// TestYear is a year of runs: a worker passes every night while readers read and a persister appends. In the
// end exactly the right runs are gone.
func TestYear(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		y := newYear(t, s)
		k, err := retention.New(func() retention.Config { c := y.config(); c.Pause = time.Millisecond; return c }())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		r := new(readers)
		var longest, total time.Duration
		var sum retention.Report
		next := y.begin(0)
		y.appendAll(next)
		for day := range y.size[0] {
			y.runs = append(y.runs, next...)
			r.add(next)
			if day == 0 {
				for i := range 2 {
					reading.Go(func() { r.read(ctx, s, rand.New(rand.NewPCG(uint64(i), 7))) })
				}
			}
			y.now = time.Date(2024, 1, 2, 0, 30, 0, 0, time.UTC).Add(days(day))
			y.archiveSome(next)
			y.holdSomething(day)
			y.goOn(day)
			next = y.begin(day + 1)
			done := make(chan retention.Report, 1)
			go func() {
				rep, err := k.Pass(t.Context())
				if err != nil {
					t.Error(err)
				}
				done <- rep
			}()
			y.appendAll(next)
			rep := <-done
			if want := y.expire(); rep.Expired != want || rep.Failed > 0 || rep.More {
				t.Fatalf("day %d: expired %d, want %d: %+v", day, rep.Expired, want, rep)
			}
			longest, total = max(longest, rep.Took), total+rep.Took
			sum.Expired, sum.Events, sum.Days = sum.Expired+rep.Expired, sum.Events+rep.Events, sum.Days+rep.Days
			sum.Blobs, sum.Messages = sum.Blobs+rep.Blobs, sum.Messages+rep.Messages
			if day%90 == 89 {
				y.compare(next...)
			}
		}
		stop()
		reading.Wait()
		y.compare(next...)
		if wrong := r.wrong.Load(); wrong != nil {
			t.Fatal(*wrong)
		}
		t.Logf("%d runs of %d events: %d expired, %d rows, %d partitions dropped, %d blobs, %d messages; passes %v on average, longest %v; %d reads, p99 %v",
			len(y.runs), y.size[2], sum.Expired, sum.Events, sum.Days, sum.Blobs, sum.Messages,
			(total / time.Duration(y.size[0])).Round(time.Microsecond), longest.Round(time.Microsecond), len(r.took),
			r.p99().Round(time.Microsecond))
		if limit := 5*time.Second + time.Duration(y.size[1])*20*time.Millisecond; longest > limit {
			t.Fatalf("a pass took %v, over %v", longest, limit)
		}
		if sum.Expired == 0 || sum.Blobs == 0 || sum.Messages == 0 {
			t.Fatalf("something never happened: %+v", sum)
		}
	})
}

// appendAll is the persister: the packs of some runs in one transaction.
func (y *year) appendAll(runs []*modelRun) {
	packs := make([]schema.Pack, len(runs))
	for i, r := range runs {
		packs[i] = r.packs[0]
	}
	y.append(packs...)
	for i, p := range packs {
		if i%4 == 0 { // the log still has it
			y.logged(p)
		}
	}
}

func (y *year) archiveSome(runs []*modelRun) {
	for i, r := range runs {
		if i%2 == 0 && r.state.Final() {
			y.archived(r.writer.Key)
			r.blob = true
		}
	}
}
