package producers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/internal/backoff"
	"agentstream/schema"
)

// writer stores packs of one run by compare-and-set and keeps what it has read of the run between
// them. Used by one goroutine at a time.
type writer struct {
	log     Log
	archive Archive
	build   builder
	shared  bool
	timeout time.Duration
	hooks   Hooks

	head  schema.Head // as of the newest pack that this writer has seen
	known bool        // head has been read
	// The run's own lane and those of children that this writer has looked at. A lane is current only while no foreign
	// pack has been seen since: a foreign pack may have been the takeover.
	own   laneState // the run's own: most runs have no other, and many writers are remembered
	lanes map[string]*laneState
	fresh uint64 // counts foreign packs seen; a lane with an older number must be looked at again

	// job may refuse a head that has just been read, or a pack, and finishes a pack before it is sent; nil
	// for a Publisher.
	job *appendJob

	// the run is the one to write to, whatever the log has of its id
	root   bool
	parent func(ctx context.Context, tenant, child string) (root string, err error) // see AppenderConfig
}

// childError reports that events of this id belong into the log of another run. It ends with the writer's caller.
type childError struct{ root string }

func (e *childError) Error() string { return "it is a child of run " + e.root }

type laneState struct {
	known bool        // lane is what our packs have
	lane  schema.Lane // of our packs
	found schema.Lane // what the log had when it was read
	read  bool        // it was
	owned bool        // a pack of ours with this epoch is stored
	seen  uint64      // value of writer.fresh when it was read
}

func newWriter(cfg Config) *writer {
	return &writer{
		log: cfg.Log, archive: cfg.Archive, shared: cfg.Shared, timeout: cfg.Timeout, hooks: cfg.Hooks,
		build: builder{key: cfg.Key, writer: writerID(), now: cfg.Now, ids: cfg.IDs, keys: cfg.Seal},
	}
}

// lane returns the state of a lane: of one that has not been looked at, a new one.
func (w *writer) lane(child string) *laneState {
	if child == "" {
		return &w.own
	}
	if s := w.lanes[child]; s != nil {
		return s
	}
	return new(laneState)
}

// commit stores the longest prefix of events that fits one pack and returns how many it stored. It
// tries until the outcome is certain, ctx ends, or the lane is lost. An error with n > 0 is about
// the event behind the pack; with n 0 nothing was stored, unless it wraps ErrUnanswered.
func (w *writer) commit(ctx context.Context, events []schema.Event, lim limits) (*schema.Pack, int, error) {
	for attempt := 0; ; attempt++ {
		if attempt >= fairAttempts {
			w.hold(ctx)
		}
		pack, n, refused, err := w.try(ctx, events, lim)
		if n == 0 && attempt >= fairAttempts && !errors.Is(err, ErrConflict) {
			w.release(ctx)
		}
		if err == nil || !errors.Is(err, ErrConflict) {
			if err == nil {
				err = refused
			}
			return pack, n, w.trail(err)
		}
		if w.hooks.Conflict != nil {
			w.hooks.Conflict()
		}
		if err := backoff.Sleep(ctx, backoff.Delay(attempt, 200*time.Microsecond, 20*time.Millisecond)); err != nil {
			if attempt >= fairAttempts {
				w.release(ctx)
			}
			return nil, 0, w.trail(err)
		}
	}
}

// try is one round of commit. refused is about the event behind the stored pack.
func (w *writer) try(ctx context.Context, events []schema.Event, lim limits) (p *schema.Pack, n int, refused,
	err error) {
	remembered := w.known
	lane, events, err := w.claimAsked(ctx, events)
	if errors.Is(err, ErrNotOwner) && remembered {
		w.forget() // what is remembered may be older than the owner
		lane, events, err = w.claimAsked(ctx, events)
	}
	if err != nil {
		return nil, 0, nil, err
	}
	if err = w.open(ctx); err != nil {
		return nil, 0, nil, err
	}
	p, n, refused = w.build.build(w.head, lane, events, lim)
	if n == 0 && remembered {
		// What we remember may be older than what the caller has seen: look before refusing.
		w.forget()
		if lane, events, err = w.claimAsked(ctx, events); err != nil {
			return nil, 0, nil, err
		}
		p, n, refused = w.build.build(w.head, lane, events, lim)
	}
	if n == 0 {
		return nil, 0, refused, nil
	}
	if w.job != nil {
		if err := w.job.stamp(p); err != nil {
			return nil, 0, nil, err
		}
	}
	if err = w.adopt(ctx, events[:n]); err != nil {
		return nil, 0, nil, err
	}
	if p, err = w.store(ctx, p); err != nil {
		return nil, 0, nil, err
	}
	return p, n, refused, nil
}

// claimAsked is claim, and returns the events to store: what the job has left of its own, which it may have planned
// anew for the head at hand, and for another lane.
func (w *writer) claimAsked(ctx context.Context, events []schema.Event) (lane schema.Lane, asked []schema.Event,
	err error) {
	for {
		lane, err = w.claim(ctx, events)
		if w.job == nil || err != nil {
			return lane, events, err
		}
		if err := w.checkOwner(ctx, w.job.opt.Owner); err != nil {
			return lane, events, err
		}
		asked = w.job.rest
		if asked[0].ChildID == events[0].ChildID {
			return lane, asked, nil
		}
		events = asked
	}
}

// ErrNotOwner reports that the run's own lane has another owner than AppendOptions.Owner.
var ErrNotOwner = errors.New("the run is not under this lease")

// checkOwner checks who owns the run's own lane, as of the head. "" asks for nobody.
func (w *writer) checkOwner(ctx context.Context, owner string) error {
	if owner == "" {
		return nil
	}
	if !w.own.read || w.own.seen != w.fresh {
		if err := w.lookAtLanes(ctx, make([]schema.Event, 1)); err != nil {
			return err
		}
	}
	if w.own.found.Owner != owner {
		return ErrNotOwner
	}
	return nil
}

func (w *writer) trail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("producers: write %s: %w", w.build.key, err)
}

// claim makes sure that the head, and the lane of the first of events, are current and returns what the next pack of
// the lane has of its owner. ErrFenced: a higher epoch than ours is on the lane.
func (w *writer) claim(ctx context.Context, events []schema.Event) (schema.Lane, error) {
	child := events[0].ChildID
	s := w.lane(child)
	if w.known && s.known && s.seen == w.fresh {
		return s.lane, nil
	}
	if !w.known {
		if err := w.look(ctx, child); err != nil {
			return schema.Lane{}, err
		}
		s = w.lane(child)
	}
	if !s.read || s.seen != w.fresh {
		if err := w.lookAtLanes(ctx, events); err != nil {
			return schema.Lane{}, err
		}
		s = w.lane(child)
	}
	switch found := s.found; {
	case w.shared:
		s.lane, s.owned = found, false
	case !s.owned:
		epoch, err := w.epoch(ctx, child, found)
		if err != nil {
			return schema.Lane{}, err
		}
		s.lane = schema.Lane{Owner: w.build.writer, Epoch: epoch + 1}
	case found != s.lane && found.Owner != "" && found.Epoch >= s.lane.Epoch:
		// A lower epoch than ours means that the log has lost our own packs.
		// No owner means that the lane's last pack has left the log's window while the run went on in
		// other lanes: nobody has taken anything over.
		if w.hooks.Fenced != nil {
			w.hooks.Fenced(w.build.key)
		}
		return schema.Lane{}, fmt.Errorf("lane %q: owner %s, epoch %d, ours was %d: %w",
			child, found.Owner, found.Epoch, s.lane.Epoch, ErrFenced)
	}
	s.known = true
	return s.lane, nil
}

// look reads the head and the owner of one lane, and asks the job about the head when it is a new one.
func (w *writer) look(ctx context.Context, child string) error {
	head, err := w.readFree(ctx, child)
	if err != nil {
		return err
	}
	if root, err := w.rootOf(ctx, head); err != nil || root != "" {
		return cmp.Or(err, error(&childError{root}))
	}
	w.reportLoss(head)
	w.fresh++ // there may be packs that we have not seen: every other lane must be looked at again
	w.head, w.known = head, true
	w.noteLane(child, head.Lane)
	if w.job == nil {
		return nil
	}
	return w.job.guard(ctx, head)
}

// noteLane notes what the log has of a lane.
func (w *writer) noteLane(child string, lane schema.Lane) {
	s := w.lane(child)
	s.found, s.read, s.known, s.seen = lane, true, false, w.fresh
	if child == "" {
		return
	}
	if w.lanes == nil {
		w.lanes = make(map[string]*laneState)
	}
	w.lanes[child] = s
}

// Bounds of one look at lanes.
const (
	lanesAtOnce  = 1000
	eventsAtOnce = 8 * schema.MaxPackEvents // through which it searches for lanes
)

// lookAtLanes reads the owners of the lanes of events that are not current, of many at once. What others have stored
// since the head was read, and may be in the answer, makes the compare-and-set fail.
func (w *writer) lookAtLanes(ctx context.Context, events []schema.Event) error {
	var lanes []string
	listed := make(map[string]bool)
	for i := range events[:min(len(events), eventsAtOnce)] {
		child := events[i].ChildID
		if i > 0 && child == events[i-1].ChildID || listed[child] {
			continue
		}
		listed[child] = true
		if s := w.lane(child); s.read && s.seen == w.fresh {
			continue
		}
		if lanes = append(lanes, child); len(lanes) == lanesAtOnce {
			break
		}
	}
	var owners []schema.Lane
	err := w.patiently(ctx, func(ctx context.Context) (err error) {
		owners, err = Lanes(ctx, w.log, w.build.key, lanes)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the owners of %d lanes: %w", len(lanes), err)
	}
	for i, lane := range lanes {
		w.noteLane(lane, owners[i])
	}
	return nil
}

// epoch returns the highest epoch that the lane has had. The archive has it when the
// lane's last pack has left the log's window.
func (w *writer) epoch(ctx context.Context, child string, found schema.Lane) (uint64, error) {
	if found.Epoch > 0 || w.archive == nil || !w.head.HasEvents() {
		return found.Epoch, nil
	}
	var old schema.Head
	err := w.patiently(ctx, func(ctx context.Context) (err error) {
		old, err = w.archive.Head(ctx, w.build.key, child)
		return err
	})
	return old.Lane.Epoch, err
}

// readHead reads until the log answers: an outage is a wait, not an error.
func (w *writer) readHead(ctx context.Context, child string) (schema.Head, error) {
	var head schema.Head
	err := w.patiently(ctx, func(ctx context.Context) (err error) {
		head, err = ReadHead(ctx, w.log, w.archive, w.build.key, child)
		return err
	})
	return head, err
}

// ReadHead returns a run's head with the owner of the lane child: from the log, or from the archive, which may be
// nil, when the log no longer holds the run. A run that neither holds has the zero Head and no error.
func ReadHead(ctx context.Context, log Log, archive Archive, key schema.RunKey, child string) (schema.Head, error) {
	head, err := log.Head(ctx, key, child)
	if err != nil {
		return schema.Head{}, fmt.Errorf("read head: %w", err)
	}
	if head.HasEvents() || head.Root != "" || archive == nil {
		return head, nil
	}
	old, err := archive.Head(ctx, key, child)
	if err != nil {
		return schema.Head{}, fmt.Errorf("read archived head: %w", err)
	}
	old.Stored, old.Held, old.Generation = head.Stored, head.Held, head.Generation
	return old, nil
}

// reportStored calls Hooks.Stored for a pack, whether the answer came or the pack was found.
func (w *writer) reportStored(p *schema.Pack, began time.Time) {
	if w.hooks.Stored != nil {
		w.hooks.Stored(p.Count, len(p.Body), time.Since(began))
	}
}

// retryPause is the longest pause before a pack is sent again. A log without a leader refuses at once, and takes
// the pack as soon as it has one.
const retryPause = 100 * time.Millisecond

// store sends one pack until its fate is known. It returns the pack as it is stored. ErrConflict:
// it is certain that the pack is not stored and never will be.
func (w *writer) store(ctx context.Context, p *schema.Pack) (*schema.Pack, error) {
	doubt := false // an earlier attempt with this very pack was not answered
	began := time.Now()
	for attempt := 0; ; attempt++ {
		patience := w.timeout
		if attempt == 0 { // a leader that goes takes with it what is under way; it is looked for soon
			patience /= 2
		}
		stored, err := w.append(ctx, p, patience)
		if err == nil {
			w.took(p, stored)
			w.reportStored(p, began)
			return p, nil
		}
		switch {
		case errors.Is(err, ErrRenewed):
			return w.resolveRenewed(ctx, p, doubt)
		case errors.Is(err, ErrConflict) && !doubt:
			w.forget()
			return nil, err
		case w.hopeless(err):
			return nil, w.unsure(err, doubt)
		case errors.Is(err, ErrUnavailable), errors.Is(err, ErrFull): // certain: nothing was stored
			if w.hooks.Retry != nil {
				w.hooks.Retry(err)
			}
			if err := backoff.Sleep(ctx, backoff.Delay(attempt, 10*time.Millisecond, retryPause)); err != nil {
				return nil, w.unsure(err, doubt)
			}
			continue
		case errors.Is(err, ErrUnanswered), errors.Is(err, ErrConflict):
			doubt = true
		default:
			return nil, err
		}
		if w.hooks.Retry != nil {
			w.hooks.Retry(err)
		}
		refusal := err
		found, err := w.find(ctx, p)
		if err != nil {
			return nil, w.unsure(err, !errors.Is(err, ErrSetup)) // a stream that is not there has not got it
		}
		if found != nil {
			w.took(found, found.Head.Stored)
			w.reportStored(found, began)
			return found, nil
		}
		outrun, err := w.isOutrun(ctx, p, refusal)
		if err != nil {
			return nil, w.unsure(err, true)
		}
		if outrun { // our compare-and-set is stale and can never succeed
			w.forget()
			return nil, ErrConflict
		}
		// Still nothing behind what we knew: the very same pack may be sent again. Should the lost
		// attempt arrive late after all, one of the two is refused and found.
		if err := backoff.Sleep(ctx, backoff.Delay(attempt, 10*time.Millisecond, retryPause)); err != nil {
			return nil, w.unsure(err, true)
		}
	}
}

// hopeless reports whether waiting does not mend an error in the time of a request. Whoever asks is then told at once;
// a publisher waits until somebody has seen to it.
func (w *writer) hopeless(err error) bool {
	return w.shared && (errors.Is(err, ErrFull) || errors.Is(err, ErrSetup))
}

func (w *writer) unsure(err error, doubt bool) error {
	if doubt {
		return fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return err
}

func (w *writer) append(ctx context.Context, p *schema.Pack, patience time.Duration) (uint64, error) {
	p.Head.Stored = w.head.Stored // remembered for store: what this attempt was based on
	one := attempt(ctx, patience)
	defer one.release()
	return w.log.Append(one, p, w.head.Stored)
}

// took moves the head behind our own pack.
func (w *writer) took(p *schema.Pack, stored uint64) {
	p.Head.Stored = stored
	w.head = p.Head
	w.known = true
	w.lane(p.Child).owned = true
}

// forget makes the next commit read the head and the lanes again.
func (w *writer) forget() {
	w.known = false
	w.fresh++
}

// find looks for p itself: if it is stored, it is the very next pack behind the position that p was
// based on, for that is what its compare-and-set demanded. It leaves w.head at that pack, so that
// store can tell whether somebody else's is there.
func (w *writer) find(ctx context.Context, p *schema.Pack) (found *schema.Pack, err error) {
	base := p.Head.Stored
	w.head.Stored = base
	err = w.patiently(ctx, func(ctx context.Context) error {
		for q, err := range w.log.Since(ctx, w.build.key, base) {
			if err != nil {
				return err
			}
			if w.head.Stored = q.Head.Stored; q.Writer == p.Writer && q.First == p.First && q.Child == p.Child {
				found = &q
			}
			return nil
		}
		return nil
	})
	return found, err
}

// lookTimeout bounds one look at log and archive. The log is asked several times in it; see natskit.Repeat.
const lookTimeout = 5 * time.Second

// patiently repeats a read that the log does not answer, until ctx ends.
func (w *writer) patiently(ctx context.Context, read func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		once, cancel := context.WithTimeout(ctx, max(w.timeout, lookTimeout))
		err := read(once)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, schema.ErrBadPack) || errors.Is(err, schema.ErrEnded) ||
			errors.Is(err, schema.ErrKeyGone) || w.hopeless(err) {
			return err
		}
		if w.hooks.Retry != nil {
			w.hooks.Retry(err)
		}
		if err := backoff.Sleep(ctx, backoff.Delay(attempt, 10*time.Millisecond, time.Second)); err != nil {
			return err
		}
	}
}
