package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/limits"
	"agentstream/edge/protocol"
	"agentstream/edge/publish"
	"agentstream/producers"
	"agentstream/schema"
)

// StorePosts does for posts what ingest does for a request, in their order: a post whose events fit one pack is
// stored whole or not at all, a larger one as ingest has it. A refusal of one is no matter of the others, but
// for that of what is over the tenant's limit, which is that of all that come after it. It adds an answer for
// each to answers. Posts that fit one pack are stored at once, which saves most of what each of them would
// cost. The caller has made sure that the sender may write to the tenant's runs. It keeps nothing of posts.
func (a *API) StorePosts(ctx context.Context, key schema.RunKey, posts []producers.Post,
	answers []producers.Answer) []producers.Answer {
	from := auth.Caller{Tenant: key.Tenant, Scopes: auth.ScopeWrite} // NATS knows no more of the sender
	return a.storePosts(&taking{a: a, ctx: ctx, from: &from, key: key, posts: posts}, answers)
}

// Lines is Take for lines of a client, whose commands are taken as ingest has it. Their events have been counted
// against the limits of its tenant.
func (a *API) Lines(ctx context.Context, from *publish.Client, key schema.RunKey, posts []producers.Post, patient bool,
	answers []producers.Answer) []producers.Answer {
	return a.storePosts(&taking{a: a, ctx: ctx, from: &from.Caller, trace: from.Trace, key: key, posts: posts, lines: true,
		patient: patient}, answers)
}

// storePosts is StorePosts and Lines: what they have in common.
func (a *API) storePosts(t *taking, answers []producers.Answer) (all []producers.Answer) {
	before, posts := len(answers), t.posts
	for range posts {
		answers = append(answers, producers.Answer{})
	}
	in := a.cfg.Bodies.Batches.Get()
	defer a.cfg.Bodies.Batches.Put(in)
	t.answers, t.events = answers[before:], in.Events[:0]
	defer func() {
		in.Events = t.events
		if v := recover(); v != nil {
			t.refuseAll(v)
			all = answers
		}
	}()
	if err := t.key.Validate(); err != nil {
		t.refuse(0, len(posts), err)
		return answers
	}
	if !t.lines {
		t.meter, t.over = a.cfg.Limits.Enter(t.key.Tenant, false)
		defer a.cfg.Limits.Leave(t.meter, false)
	}
	t.spends = t.spend
	for i := range posts {
		t.add(i)
	}
	t.flush(len(posts))
	return answers
}

// Refusal puts an error into words, those of HTTP.
func (a *API) Refusal(err error) *producers.Refusal {
	reason := ends.ReasonOf(err)
	p := ends.Problem(reason, err)
	return &producers.Refusal{Status: p.Status, Number: numberOf(reason), Code: p.Code, Message: p.Message,
		Line: p.Line, Field: p.Field,
		Retry: ends.RetryAfter(reason, err)}
}

// numbers are what a refused post's reason is called in a number (docs/nats-ingest.md). They never change.
// JetStream's own begin at 10000.
var numbers = map[dialect.Reason]int{
	dialect.ReasonMalformed:   20001,
	dialect.ReasonUnknownType: 20002,
	dialect.ReasonForeignRun:  20003,
	dialect.ReasonTooLarge:    20004,
	dialect.ReasonBadID:       20005,
	dialect.ReasonBadRequest:  20006,
	dialect.ReasonSeqMismatch: 20007,
	dialect.ReasonRunEnded:    20008,
	dialect.ReasonKeyReused:   20009,
	dialect.ReasonConflict:    20010,
	dialect.ReasonUnanswered:  20011,
	dialect.ReasonBusy:        20012,
	dialect.ReasonUnavailable: 20013,
	dialect.ReasonShutdown:    20014,
	dialect.ReasonLimited:     20015,
	dialect.ReasonFull:        20016,
	dialect.ReasonKeyGone:     20018,
	dialect.ReasonForbidden:   20017,
	dialect.ReasonInternal:    20099,
}

func numberOf(r dialect.Reason) int {
	if n, ok := numbers[r]; ok {
		return n
	}
	return numbers[dialect.ReasonInternal]
}

// taking is one Take under way. Posts first … of those that were added, and were not refused, are in events and
// not stored yet: consecutive ones, all of one lane, which fit one pack.
type taking struct {
	a       *API
	ctx     context.Context
	from    *auth.Caller
	trace   string // as of publish.Client
	key     schema.RunKey
	posts   []producers.Post
	answers []producers.Answer
	lines   bool // of a client, which were counted
	patient bool // see producers.AppendOptions

	first  int
	count  int // of posts in events
	events []schema.Event
	size   int // of events, at most

	fresh map[int][]string // blobs that posts have brought

	trouble bool // nothing more is stored

	meter  *limits.Meter                       // of the tenant
	spends func(events int, bytes int64) error // spend, made once
	// once its limit is used up: so it is for the posts that follow, which must not overtake
	over error
}

// add reads post i and puts its events behind those that wait, which are stored first if it cannot go with them.
func (t *taking) add(i int) {
	held := len(t.events)
	opt, err := t.read(i)
	if err != nil {
		clear(t.events[held:])
		t.events = t.events[:held]
		t.refuse(i, i+1, err)
		return
	}
	fresh := t.events[held:]
	t.answers[i].Events = len(fresh)
	size, mixed := 0, false
	for n := range fresh {
		size += fresh[n].Size()
		mixed = mixed || fresh[n].ChildID != fresh[0].ChildID
	}
	alone := mixed || opt.IdempotencyKey != "" || opt.Admit != nil
	if held > 0 && (alone || fresh[0].ChildID != t.events[0].ChildID || len(t.events) > schema.MaxPackEvents ||
		t.size+size > schema.MaxPackBytes) {
		all := t.events
		t.events = all[:held]
		t.flush(i)
		t.events = append(all[:0], fresh...)
		clear(all[len(t.events):])
	}
	if t.count == 0 {
		t.first = i
	}
	t.count++
	t.size += size
	if alone {
		t.store(i, i+1, t.events, opt)
		t.reset()
	}
}

// read appends the events of post i to those that wait, and says how they are to be stored.
func (t *taking) read(i int) (producers.AppendOptions, error) {
	p := &t.posts[i]
	if t.over != nil {
		return producers.AppendOptions{}, t.over
	}
	opt, err := t.options(p)
	if err != nil {
		return opt, err
	}
	b := batch{
		key: t.key, from: t.from, body: p.Body, events: t.events, spend: t.spends,
	}
	err = t.a.accept(t.ctx, &b, &opt)
	t.events = b.events
	if err != nil && !ofOnePost(err) {
		t.over = err // it is the same for those that follow, which must not overtake
	}
	if len(b.fresh) > 0 {
		if t.fresh == nil {
			t.fresh = make(map[int][]string)
		}
		t.fresh[i] = b.fresh
	}
	return opt, err
}

// spend counts a post against the limits of the tenant.
func (t *taking) spend(events int, bytes int64) error {
	t.over = t.a.cfg.Limits.Spend(t.meter, events, bytes)
	return t.over
}

// options returns how a post is to be appended, or that it must not be.
func (t *taking) options(p *producers.Post) (producers.AppendOptions, error) {
	if limit := t.a.cfg.MaxBodyBytes; int64(len(p.Body)) > limit {
		return producers.AppendOptions{}, fmt.Errorf("%w: %d bytes, %d allowed", ends.ErrBodyTooBig, len(p.Body), limit)
	}
	if p.Unserved != "" {
		return producers.AppendOptions{}, fmt.Errorf("header %q is not served here: %w", ends.Clip(p.Unserved),
			dialect.ErrBadRequest)
	}
	name := "Nats-Msg-Id"
	if t.lines {
		name = "the key"
	}
	return protocol.ParseKey(name, p.Keys)
}

// flush stores what waits: that of the posts before end.
func (t *taking) flush(end int) {
	if t.count > 0 {
		t.store(t.first, end, t.events, producers.AppendOptions{})
		t.reset()
	}
}

// via names the way of the posts, for the audit feed.
func (t *taking) via() string {
	if t.lines {
		return protocol.ViaNative
	}
	return "nats"
}

func (t *taking) reset() {
	clear(t.events)
	t.events, t.count, t.size = t.events[:0], 0, 0
}

// isWaiting reports whether post i has events that are not stored yet.
func (t *taking) isWaiting(i int) bool { return t.answers[i].Events > 0 && t.answers[i].First == 0 }

// store appends events, which are those that wait of the posts i … end-1, and answers these. What the log refuses
// for the sake of one post is stored without it. Trouble of another kind ends the taking: what was sent later
// must not be stored without what was sent earlier.
func (t *taking) store(i, end int, events []schema.Event, opt producers.AppendOptions) {
	opt.Patient, opt.Trace = t.patient, t.trace
	for opt.Within = t.a.cfg.LogTimeout; len(events) > 0; {
		for !t.isWaiting(i) {
			i++
		}
		if t.trouble {
			t.refuse(i, end, fmt.Errorf("after an event that could not be stored: %w", schema.ErrUnavailable))
			return
		}
		receipt, err := t.a.cfg.Appender.Append(t.ctx, t.key, events, opt)
		if err == nil {
			t.a.cfg.Node.RecordEvents(t.ctx, t.from, t.via(), t.key, events, receipt.Last)
			t.answerStored(i, end, len(events), receipt)
			return
		}
		single := t.answers[i].Events == len(events)
		t.trouble = !ofOnePost(err)
		if single || t.trouble {
			t.refuse(i, end, locateLine(err, t.posts[i].Body))
			return
		}
		bad, before := t.culprit(i, events, err)
		if before == 0 {
			events = events[t.answers[i].Events:]
			t.refuse(i, i+1, locateLine(err, t.posts[i].Body))
			continue
		}
		t.store(i, bad, events[:before], opt)
		i, events = bad, events[before:]
	}
}

// culprit finds the post for whose sake events were refused, which begin with those of post i, and says how many
// events are before it. When err does not tell, it is a post in the middle: each half is smaller.
func (t *taking) culprit(i int, events []schema.Event, err error) (post, before int) {
	at := new(schema.BatchError)
	told := errors.As(err, &at)
	bad := len(events) / 2
	if told {
		bad = at.Line - 1
	}
	for {
		n := t.answers[i].Events
		if t.isWaiting(i) {
			if before+n > bad && (told || before > 0) {
				return i, before
			}
			before += n
		}
		i++
	}
}

// ofOnePost reports whether err, of an append, is about an event, and nothing was stored. All else is trouble that
// the next append would have as well.
func ofOnePost(err error) bool {
	reason := ends.ReasonOf(err)
	return reason != dialect.ReasonClientGone && ends.OutcomeOf(reason).Status < http.StatusInternalServerError
}

// answerStored answers the posts i … end-1 that wait. Those of several are in one pack, and so without a gap.
func (t *taking) answerStored(i, end, events int, receipt producers.Receipt) {
	if h := t.a.cfg.Hooks.Ingested; h != nil && !receipt.Replayed {
		h(events)
	}
	next := receipt.First
	for ; i < end; i++ {
		a := &t.answers[i]
		if !t.isWaiting(i) {
			continue
		}
		a.First, a.Last, a.Root, a.Replayed = next, next+schema.Seq(a.Events)-1, receipt.Root, receipt.Replayed
		if a.Events == events { // its packs may have those of others between them
			a.Last = receipt.Last
		}
		next = a.Last + 1
	}
}

// refuse answers those of the posts i … end-1 that have no answer yet.
func (t *taking) refuse(i, end int, err error) {
	refusal := t.a.Refusal(err)
	for ; i < end; i++ {
		if a := &t.answers[i]; a.First == 0 && a.Refusal == nil {
			t.a.disown(t.ctx, t.key, t.fresh[i], err)
			if errors.Is(err, auth.ErrForbidden) {
				t.a.cfg.Node.NoteRefusal(t.from, t.key.Run, t.via(), "", "forbidden")
			}
			*a = producers.Answer{Refusal: refusal}
			if h := t.a.cfg.Hooks.IngestRefused; h != nil {
				h(ends.ReasonOf(err))
			}
		}
	}
	if reason := ends.ReasonOf(err); refusal.Status >= http.StatusInternalServerError && reason != dialect.ReasonShutdown {
		t.a.cfg.Logger.LogAttrs(t.ctx, slog.LevelError, "take", slog.String("tenant", t.key.Tenant),
			slog.String("run", t.key.Run),
			slog.String("reason", reason.String()), slog.Any("error", err))
	}
}

// refuseAll answers what a panic has left: one event must not end the process.
func (t *taking) refuseAll(v any) {
	t.refuse(0, len(t.posts), fmt.Errorf("%w: %v\n%s", ends.ErrPanic, v, debug.Stack()))
}
