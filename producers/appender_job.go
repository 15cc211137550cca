package producers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"agentstream/schema"
	"agentstream/schema/redact"
)

// appendJob is one Append under way.
type appendJob struct {
	a      *Appender
	w      *writer
	key    schema.RunKey
	child  string         // by whose id the run was named; "": by its own
	given  []schema.Event // as the caller has them
	events []schema.Event // as the log gets them
	opt    AppendOptions

	rules  *redact.Rules  // of the tenant; nil: nothing is hidden
	before redact.Trail   // how the run's blocks have ended
	texts  redact.Trail   // how they end with events
	clean  []schema.Event // given, for the run's own log, without what the rules hide
	hidden []redact.Hit   // in events

	rest   []schema.Event // not stored yet
	whole  bool           // it must fit one pack
	stale  bool           // others may have written since the head was read: a refusal must look again
	looked bool           // rest may follow the writer's head

	refused bool // by the head that guard was asked about

	id      string              // hashed idempotency key
	scanned uint64              // packs up to this position have been looked at for our own
	parts   map[int]schema.Pack // our packs that are stored already
	next    int                 // part that is to be stored next
	receipt Receipt
}

func (j *appendJob) run(ctx context.Context) (Receipt, error) {
	j.rest = j.events
	if _, err := j.w.claim(ctx, j.rest); err != nil {
		return Receipt{}, j.w.trail(err)
	}
	digest := ""
	if j.opt.IdempotencyKey != "" {
		digest = digestOf(j.given)
		done, err := j.claimKey(ctx, digest)
		if err != nil || done {
			return j.receipt, j.w.trail(err)
		}
	}
	j.w.job = j
	if err := j.store(ctx); err != nil {
		return Receipt{}, err
	}
	j.finish(ctx, digest)
	return j.receipt, nil
}

// redact hides in the events what the tenant's rules find. The content of an idempotency key stays what was given.
func (j *appendJob) redact(before redact.Trail) {
	j.rules, j.before = j.a.cfg.Redact.Of(j.key.Tenant), before
	j.events = j.hide(j.events)
	j.clean = j.events
	j.opt.First = j.rules.Batch(redact.Trail{}, j.opt.First).Events
}

// hide returns events without what the tenant's rules find in them, and notes how their texts end.
func (j *appendJob) hide(events []schema.Event) []schema.Event {
	done := j.rules.Batch(j.before, events)
	j.texts, j.hidden = done.Trail, done.Hits
	return done.Events
}

// claimKey looks the idempotency key up or records the intent. done: the answer is in receipt.
func (j *appendJob) claimKey(ctx context.Context, digest string) (done bool, err error) {
	if j.a.cfg.Keys == nil {
		return false, fmt.Errorf("idempotency keys are not kept here: %w", ErrUnavailable)
	}
	sum := sha256.Sum256([]byte(j.key.Tenant + "\x00" + cmp.Or(j.child, j.key.Run) + "\x00" + j.opt.IdempotencyKey))
	j.id = hex.EncodeToString(sum[:16])
	quota, own := j.a.cfg.Quota, KeyRecord{Digest: digest, After: j.w.head.Stored}
	if quota != nil && !quota.Count(j.key.Tenant, j.a.cfg.Now()) {
		return false, ErrKeys
	}
	rec, err := j.a.cfg.Keys.Claim(ctx, j.id, own)
	if err != nil {
		return false, fmt.Errorf("look idempotency key up: %w", err)
	}
	if quota != nil && rec != own { // it was counted when it was new
		quota.Return(j.key.Tenant)
	}
	if rec.Digest != digest {
		return false, ErrKeyReused
	}
	if rec.Done {
		j.receipt = Receipt{First: rec.First, Last: rec.Last, Replayed: true}
		return true, nil
	}
	j.scanned, j.parts = rec.After, make(map[int]schema.Pack)
	return false, nil
}

// guard looks at each head that the writer reads: whether what is not stored yet may follow it, and whether a
// repeat of this append has stored some of its packs.
func (j *appendJob) guard(ctx context.Context, head schema.Head) error {
	j.refused = false
	if j.id != "" && head.Stored > j.scanned {
		if err := j.scan(ctx); err != nil {
			return err
		}
	}
	if _, duplicate := j.parts[j.next]; duplicate {
		return errDuplicate
	}
	if j.next == 0 && j.opt.MustBeNew && head.HasEvents() {
		if known, err := j.isKnown(ctx); err != nil || known {
			return cmp.Or(err, ErrExists) // which no newer head would take back
		}
	}
	err := j.admit(ctx, head)
	j.refused = err != nil
	return err
}

// isKnown reports whether the log has events of the run, or of the child by whose id it was named.
func (j *appendJob) isKnown(ctx context.Context) (bool, error) {
	if j.child == "" {
		return true, nil
	}
	for q, err := range j.w.log.Since(ctx, j.key, 0) {
		if err != nil {
			return false, fmt.Errorf("look for events of child %s: %w", j.child, err)
		}
		if q.Child == j.child {
			return true, nil
		}
	}
	return false, nil
}

// admit decides whether rest may follow head. The caller's conditions are about the batch's beginning.
func (j *appendJob) admit(ctx context.Context, head schema.Head) error {
	if j.next == 0 && j.opt.Plan != nil {
		planned, err := j.opt.Plan(ctx, head, j.given)
		if err != nil {
			return err
		}
		if len(planned) == 0 {
			return fmt.Errorf("no event is planned: %w", schema.ErrMalformed)
		}
		j.events = j.hide(ofChild(planned, j.child))
		j.rest = j.events
	}
	if j.next == 0 && len(j.opt.First) > 0 {
		j.begin(!head.HasEvents())
	}
	if j.opt.Admit != nil {
		if err := j.opt.Admit(ctx, j.key, head, j.rest); err != nil {
			return lineBehind(err, len(j.events)-len(j.rest))
		}
	}
	return j.checkRest(head)
}

// begin puts First before the events of a run that is new, and takes it away where others have begun the run meanwhile.
func (j *appendJob) begin(isNew bool) {
	if j.opt.Plan == nil {
		j.events = j.clean
	}
	if isNew {
		j.events = slices.Concat(j.opt.First, j.events)
	}
	j.rest = j.events
}

// look asks guard about the head that the writer holds. One that may be old is read again before it refuses.
func (j *appendJob) look(ctx context.Context) error {
	err := j.guard(ctx, j.w.head)
	if j.refused && j.stale {
		j.w.forget()
		_, err = j.w.claim(ctx, j.rest)
	}
	j.stale, j.looked = false, err == nil
	return err
}

// scan looks for packs of this append behind what has been looked at.
func (j *appendJob) scan(ctx context.Context) error {
	for q, err := range j.w.log.Since(ctx, j.key, j.scanned) {
		if err != nil {
			return fmt.Errorf("look for packs of this append: %w", err)
		}
		if q.Batch == j.id {
			j.parts[q.Part] = q
		}
		j.scanned = q.Head.Stored
	}
	return nil
}

// stamp marks a pack that has been built of rest, or refuses it.
func (j *appendJob) stamp(p *schema.Pack) error {
	if j.whole && j.next == 0 && p.Count < len(j.rest) {
		return fmt.Errorf("%w for one pack, of one child, %d events and %d bytes at most: %d of %d events fit",
			schema.ErrTooLarge, schema.MaxPackEvents, schema.MaxPackBytes, p.Count, len(j.rest))
	}
	p.Batch, p.Part, p.Patient = j.id, j.next, j.opt.Patient
	return nil
}

// store appends what is not stored yet.
func (j *appendJob) store(ctx context.Context) error {
	for {
		if err := j.takeDuplicates(); err != nil {
			return j.w.trail(err)
		}
		if len(j.rest) == 0 {
			return nil
		}
		if !j.looked {
			if err := j.look(ctx); errors.Is(err, errDuplicate) {
				continue
			} else if err != nil {
				return j.w.trail(j.partly(err))
			}
		}
		p, n, err := j.w.commit(ctx, j.rest, limits{events: schema.MaxPackEvents, bytes: schema.MaxPackBytes,
			late: j.opt.AfterEnd})
		if n > 0 {
			j.took(p, false)
		}
		if err != nil && !errors.Is(err, errDuplicate) {
			return j.partly(err)
		}
	}
}

// takeDuplicates passes over the packs that a repeat of this append has stored.
func (j *appendJob) takeDuplicates() error {
	for p, ok := j.parts[j.next]; ok; p, ok = j.parts[j.next] {
		if j.opt.Plan != nil && j.opt.Whole { // one pack, planned as the run stood then
			j.events = make([]schema.Event, p.Count)
			j.rest = j.events
		}
		if j.next == 0 && len(j.opt.First) > 0 && (j.opt.Plan == nil || !j.opt.Whole) {
			j.events = j.clean
			j.begin(p.First == 1)
		}
		if p.Count > len(j.rest) {
			return fmt.Errorf("part %d holds %d events of %d: %w", j.next, p.Count, len(j.rest), ErrKeyReused)
		}
		j.took(&p, true)
		j.looked, j.stale = false, true // the head may be one from before
	}
	return nil
}

// partly adds to an error how much is stored all the same. What is no refusal of an event may go well another
// time, and is to be tried again.
func (j *appendJob) partly(err error) error {
	if j.next == 0 {
		return err
	}
	if at := new(schema.BatchError); !errors.As(err, &at) && !errors.Is(err, ErrUnanswered) {
		err = fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return &PartialError{Stored: len(j.events) - len(j.rest), Of: len(j.events), Err: err}
}

// took passes over a pack of this append that is stored. duplicate: by a repeat of it.
func (j *appendJob) took(p *schema.Pack, duplicate bool) {
	if j.next == 0 {
		j.receipt.First, j.receipt.Replayed = p.First, duplicate
	}
	j.receipt.Last = p.Last()
	j.rest = j.rest[p.Count:]
	j.next++
}

// finish records the answer. When that fails the events are stored all the same, and a repeat finds
// them by their key; so the caller gets its answer, and does not wait for a bucket without a leader.
func (j *appendJob) finish(ctx context.Context, digest string) {
	if j.id == "" {
		return
	}
	rec := KeyRecord{Digest: digest, Done: true, First: j.receipt.First, Last: j.receipt.Last}
	one := attempt(ctx, j.a.cfg.Timeout)
	defer one.release()
	if err := j.a.cfg.Keys.Finish(one, j.id, rec); err != nil {
		j.a.cfg.Logger.Warn("record the answer under an idempotency key", "run", j.key.String(), "err", err)
	}
}

// lineBehind adds to the place of an event those that are before it.
func lineBehind(err error, done int) error {
	at := new(schema.BatchError)
	if !errors.As(err, &at) {
		return err
	}
	return &schema.BatchError{Line: done + at.Line, Err: at.Err}
}

// lineAfter takes from the place of an event, and from the numbers of a part, the events that were put before the
// given.
func lineAfter(err error, more int) error {
	if err == nil || more <= 0 {
		return err
	}
	if part := new(PartialError); errors.As(err, &part) {
		return &PartialError{Stored: max(part.Stored-more, 0), Of: part.Of - more, Err: lineAfter(part.Err, more)}
	}
	if at := new(schema.BatchError); errors.As(err, &at) {
		return &schema.BatchError{Line: max(at.Line-more, 1), Err: at.Err}
	}
	return err
}

// checkRest tries all that is not stored yet on a head.
func (j *appendJob) checkRest(head schema.Head) error {
	h := head
	done := len(j.events) - len(j.rest)
	for i := range j.rest {
		e := &j.rest[i]
		if e.Seq != 0 {
			j.whole = true
		}
		if e.Seq != 0 && e.Seq != h.Last+1 {
			return &schema.BatchError{Line: done + i + 1,
				Err: fmt.Errorf("%w: %d instead of %d", schema.ErrSeqMismatch, e.Seq, h.Last+1)}
		}
		if err := advance(&h, e, e.ID, j.opt.AfterEnd); err != nil {
			return &schema.BatchError{Line: done + i + 1, Err: err}
		}
	}
	return nil
}

func digestOf(events []schema.Event) string {
	h := sha256.New()
	var line []byte
	for i := range events {
		line = append(events[i].AppendLine(line[:0]), '\n')
		h.Write(line) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
