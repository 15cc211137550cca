package retention_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/retention"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

// archive is a store as everybody together sees it.
type archive struct {
	store
	lines
	claims
}

type lines interface{ persister.Rows }

type claims interface {
	Claim(ctx context.Context, settle, lease time.Duration, limit int) ([]schema.RunKey, error)
	Defer(ctx context.Context, key schema.RunKey, wait time.Duration) error
	Backlog(ctx context.Context, settle time.Duration, limit int) (int, error)
}

// slow lets others come in between a look at where events are and the reading of them.
type slow struct{ archive }

func (s slow) Page(ctx context.Context, key schema.RunKey, day string, after, through schema.Seq) ([]persister.Line,
	error) {
	time.Sleep(rand.N(15 * time.Millisecond))
	return s.archive.Page(ctx, key, day, after, through)
}

func (s slow) Frames(ctx context.Context, key schema.RunKey, day string, through schema.Seq) ([]persister.Frame,
	error) {
	time.Sleep(rand.N(15 * time.Millisecond))
	return s.archive.Frames(ctx, key, day, through)
}

// theRun is what has been written of a run, and what may be true of it.
type theRun struct {
	mu      sync.Mutex
	writer  *persistertest.Writer
	lines   [][]byte // of event n at n-1; also of those whose append is not answered yet
	stored  schema.Seq
	held    bool
	deleted bool // or about to be
}

func (r *theRun) bytes(after, through schema.Seq) []byte {
	return bytes.Join(r.lines[after:through], nil)
}

// deployment is one store, one folder of objects and one log, and all who work on them.
type deployment struct {
	*testing.T
	store    archive
	blobs    *blob.Folder
	reads    *blob.Archive
	workers  []*retention.Worker
	deleter  *retention.Deleter
	archiver *blob.Archiver
	runs     []*theRun
	reports  [4]int // expired, cooled, tombstones, reads
	mu       sync.Mutex
}

// Ages: what goes on now was a day ago, and a second later for each event.
const (
	keepRuns = 24*time.Hour - 5*time.Second
	keepRows = 24*time.Hour - 9*time.Second
)

func newDeployment(t *testing.T, s archive) *deployment {
	h := &deployment{T: t, store: s}
	server := testkit.NATS(t)
	log, err := natsjs.NewPurger(t.Context(), server.Dial(t), natskit.KeysBucket)
	if err == nil {
		h.blobs, err = blob.OpenFolder(filepath.Join(t.TempDir(), "blobs"))
	}
	if err == nil {
		h.reads, err = blob.New(blob.Config{Tables: slow{s}, Heads: s, Store: h.blobs})
	}
	if err == nil {
		h.archiver, err = blob.NewArchiver(blob.ArchiverConfig{Tables: slow{s}, Queue: s, Store: h.blobs, Settle: -1,
			Poll:  time.Millisecond,
			Frame: 400, Audit: 50 * time.Millisecond, Grace: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	}
	cfg := retention.Config{Runs: s, Trash: s, Tombstones: s, Log: log, Blobs: blob.Remover{Store: h.blobs},
		BatchRows: 7, Pause: time.Millisecond,
		Policy: retention.Policy{Completed: keepRuns, Ended: keepRuns, Rows: keepRows}}
	for range 2 {
		if err == nil {
			var k *retention.Worker
			k, err = retention.New(cfg)
			h.workers = append(h.workers, k)
		}
	}
	if err == nil {
		h.deleter, err = retention.NewDeleter(cfg, s, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		h.add(i)
	}
	return h
}

func (h *deployment) add(i int) {
	key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)}
	day := time.Now().UTC().AddDate(0, 0, -1-i%3).Format("20060102")
	r := &theRun{writer: persistertest.NewWriter(key, day), held: i%5 == 0}
	if r.held {
		if _, err := h.store.AddHold(h.Context(), key, "case"); err != nil {
			h.Fatal(err)
		}
	}
	h.runs = append(h.runs, r)
}

// append makes a run go on, and mostly end.
func (h *deployment) append(r *theRun, rnd *rand.Rand) {
	r.mu.Lock()
	if r.deleted {
		r.mu.Unlock()
		return
	}
	r.writer.At(time.Now().Add(-24 * time.Hour))
	events := []schema.Event{persistertest.Lifecycle(schema.StateRunning)}
	if r.stored > 0 {
		events[0] = persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`)
	}
	for i := range rnd.IntN(12) {
		events = append(events, persistertest.Event(schema.TypeTextDelta,
			fmt.Sprintf(`{"text":"%d %s"}`, i, strings.Repeat("x", rnd.IntN(300)))))
	}
	if rnd.IntN(6) > 0 {
		events = append(events, persistertest.Lifecycle([]schema.RunState{schema.StateDone, schema.StateError}[rnd.IntN(2)]))
	}
	p := r.writer.Pack("", events...)
	r.lines = append(r.lines, slices.DeleteFunc(bytes.SplitAfter(p.Body, []byte("\n")),
		func(b []byte) bool { return len(b) == 0 })...)
	r.mu.Unlock()
	chunks, err := persister.Chunks(p)
	if err != nil {
		h.Error(err)
		return
	}
	res, err := h.store.Append(h.Context(), chunks)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || len(res.Conflicts) > 0 || res.Inserted != len(events) && !r.deleted {
		h.Errorf("append to %s: %+v, %v", p.Key, res, err)
	}
	r.stored = p.Last()
}

// read reads a run from anywhere. What comes must be its bytes without a gap; what does not come must have gone. Events
// that an append has stored while their partition was being detached are seen when it is attached again: until then a
// reader is told that there are more, and comes again.
func (h *deployment) read(r *theRun, rnd *rand.Rand) {
	r.mu.Lock()
	through := r.stored
	r.mu.Unlock()
	if through == 0 {
		return
	}
	after := schema.Seq(rnd.IntN(int(through)))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		pos, problem := h.readOnce(r, rnd, after, through)
		if problem == "" {
			return
		}
		if pos == through || time.Now().After(end) {
			h.Errorf("%s from %d to %d: %s", r.writer.Key, after, through, problem)
			return
		}
	}
}

// readOnce reads once, and returns where the reading has ended, or through when there is no use in coming again, and
// what is wrong.
func (h *deployment) readOnce(r *theRun, rnd *rand.Rand, after, through schema.Seq) (pos schema.Seq, problem string) {
	pos, first := after, schema.Seq(0)
	for p, err := range h.reads.Packs(h.Context(), r.writer.Key, after, through) {
		if err != nil {
			return through, fmt.Sprintf("at %d: %v", pos, err)
		}
		if first == 0 {
			first, pos = p.First, p.First-1
		}
		r.mu.Lock()
		want := r.bytes(p.First-1, p.Last())
		r.mu.Unlock()
		if p.First != pos+1 || !bytes.Equal(p.Body, want) {
			return through, fmt.Sprintf("pack %d to %d after %d is not what was written", p.First, p.Last(), pos)
		}
		pos = p.Last()
		if rnd.IntN(8) == 0 {
			time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		}
	}
	place, err := h.store.Place(h.Context(), r.writer.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := place.Day == "" || place.Deleted
	switch {
	case err != nil:
		return through, err.Error()
	case gone && (r.held || !r.deleted):
		return through, fmt.Sprintf("it is gone: %+v", place)
	case r.held && (first > after+1 || place.Expired > 0):
		return through, fmt.Sprintf("it is held, and begins with %d: %+v", first, place)
	case first > after+1 && first-1 > place.Expired && !gone:
		return through, fmt.Sprintf("it begins with %d: %+v", first, place)
	case pos < through && pos >= place.Expired && !gone:
		return pos, fmt.Sprintf("it ends at %d: %+v", pos, place)
	}
	return pos, ""
}

func (h *deployment) keep(k *retention.Worker) {
	r, err := k.Pass(h.Context())
	if err != nil && h.Context().Err() == nil {
		h.Errorf("%+v, %v", r, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports[0], h.reports[1], h.reports[2] = h.reports[0]+r.Expired, h.reports[1]+r.Cooled, h.reports[2]+r.Tombstones
}

func (h *deployment) delete(r *theRun) {
	r.mu.Lock()
	skip := r.held || r.deleted || r.stored == 0
	r.deleted = r.deleted || !skip
	r.mu.Unlock()
	if skip {
		return
	}
	if out, err := h.deleter.Run(h.Context(), r.writer.Key); err != nil || out.Runs != 1 {
		h.Errorf("delete %s: %+v, %v", r.writer.Key, out, err)
	}
	for range h.reads.Packs(h.Context(), r.writer.Key, 0, schema.MaxSeq) {
		h.Errorf("%s is deleted and given out", r.writer.Key)
		break
	}
}

// TestTogether: appenders, archivers, two workers, a deleter and readers over one store. Readers get the bytes that
// were written, or are told that they have gone, at any time. In the end nothing is left that no run needs.
func TestTogether(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		newDeployment(t, archive{store{s, s, s, s, s, s, s, s, s, s, s}, s, s}).live()
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: migrated(t), MaxConns: 12})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		newDeployment(t, archive{store{s, s, s, s, s, s, s, s, s, s, s}, s, s}).live()
	})
}

func (h *deployment) live() {
	ctx, stop := context.WithCancel(h.Context())
	defer stop()
	var all sync.WaitGroup
	seed := uint64(time.Now().UnixNano())
	h.Logf("seed %d", seed)
	loop := func(n uint64, pause time.Duration, fn func(rnd *rand.Rand)) {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, n))
			for ctx.Err() == nil && !h.Failed() {
				fn(rnd)
				time.Sleep(time.Duration(rnd.Int64N(int64(pause))))
			}
		})
	}
	of := func(rnd *rand.Rand, part, parts int) *theRun { return h.runs[part+parts*rnd.IntN(len(h.runs)/parts)] }
	for i := range 2 {
		loop(uint64(i), 30*time.Millisecond, func(rnd *rand.Rand) { h.append(of(rnd, i, 2), rnd) })
		loop(uint64(10+i), 10*time.Millisecond, func(*rand.Rand) { h.keep(h.workers[i]) })
	}
	for i := range 3 {
		loop(uint64(20+i), 5*time.Millisecond, func(rnd *rand.Rand) {
			h.read(of(rnd, 0, 1), rnd)
			h.mu.Lock()
			h.reports[3]++
			h.mu.Unlock()
		})
	}
	loop(30, 2*time.Second, func(rnd *rand.Rand) { h.delete(of(rnd, 0, 1)) })
	all.Go(func() { _ = h.archiver.Run(ctx) })
	seen := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.reports[0] > 0 && h.reports[1] > 0
	}
	for end := time.Now().Add(5 * time.Second); !h.Failed() &&
		(time.Now().Before(end) || !seen() && time.Since(end) < 20*time.Second); {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	all.Wait()
	h.settled()
	h.Logf("%d expired, %d cooled, %d tombstones, %d reads", h.reports[0], h.reports[1], h.reports[2], h.reports[3])
	if h.reports[0] == 0 || h.reports[1] == 0 {
		h.Error("something never happened")
	}
}

// settled looks at what is left when nobody works any more.
func (h *deployment) settled() {
	if h.Failed() {
		return
	}
	h.keep(h.workers[0])
	a, err := blob.NewArchiver(blob.ArchiverConfig{Tables: h.store, Queue: h.store, Store: h.blobs, Grace: -1})
	for _, r := range h.runs { // what the archiver was cut off in is done by the next attempt
		if err == nil && !r.deleted {
			err = a.One(h.Context(), r.writer.Key)
		}
	}
	if err == nil {
		_, err = a.Audit(h.Context(), true)
	}
	if err != nil {
		h.Fatal(err)
	}
	var named []string
	for _, r := range h.runs {
		place, err := h.store.Place(h.Context(), r.writer.Key)
		if err != nil {
			h.Fatal(err)
		}
		if place.URI != "" {
			named = append(named, strings.TrimPrefix(place.URI, blob.FolderBase))
		}
		if r.deleted || r.stored == 0 {
			if left, err := h.store.Remains(h.Context(), r.writer.Key); err != nil || !left.Nothing() {
				h.Errorf("%s is deleted: %+v, %v", r.writer.Key, left, err)
			}
			continue
		}
		first, got, err := replay(h.reads.Packs(h.Context(), r.writer.Key, 0, schema.MaxSeq))
		if want := r.bytes(place.Expired, r.stored); err != nil || !bytes.Equal(got, want) || len(got) > 0 &&
			first != place.Expired+1 {
			h.Errorf("%s: %d bytes from %d, want %d, %+v, %v", r.writer.Key, len(got), first, len(want), place, err)
		}
		rows, _, err := h.store.Weigh(h.Context(),
			[]persister.EndedRun{{Key: r.writer.Key, Place: persister.Place{Day: place.Day, Last: place.Last}}})
		if err != nil || rows != int64(place.Last-place.Floor) {
			h.Errorf("%s has %d rows, %+v, %v", r.writer.Key, rows, place, err)
		}
	}
	var objects []string
	for o, err := range h.blobs.List(h.Context(), "") {
		if err != nil {
			h.Fatal(err)
		}
		if slices.Contains(named, o.Name) || !h.doubtful(o.Name) {
			objects = append(objects, o.Name)
		}
	}
	slices.Sort(named)
	if slices.Sort(objects); !slices.Equal(objects, named) {
		h.Errorf("objects %q, want %q", objects, named)
	}
}

// doubtful reports whether an object may be the only copy, as far as an audit can know: of a run whose rows have gone
// in part it holds more than the object that the run names. The archiver was cut off before the run named it, and the
// run has gone on since.
func (h *deployment) doubtful(name string) bool {
	key, _, last, err := blob.ParseName(name)
	if err != nil {
		h.Fatal(err)
	}
	place, err := h.store.Place(h.Context(), key)
	if err != nil {
		h.Fatal(err)
	}
	return !place.Deleted && place.Floor > place.Expired && last > place.Archived
}
