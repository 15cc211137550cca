package projection

import (
	"context"
	"slices"
	"time"

	"agentstream/schema"
)

// named is a start or an end of a message or of a call, with the id of what it begins or ends.
type named struct {
	place    *Place
	kind, id string
	call     bool
}

// name remembers a frame whose id may be known. Messages without an id repeat nothing.
func (f *Frames) name(at *Place, kind, id string, call bool) {
	if call || id != "" {
		f.named = append(f.named, named{at, kind, id, call})
	}
}

// Suspects are the frames of a batch that may repeat something. Nearly none do, and nearly all are new: of these it is
// enough to know whether something with the id was stored before, at the price of one look into an index for each id of
// the batch. The others, and those of which something was, are looked at more closely, which costs several times as
// much. Their methods are called in the order Probe, Find, Confirm, in one transaction.
type Suspects struct {
	plain   []group
	closely []*named
	known   []*named // of plain ones
	all     []suspicion
}

// group is the frames of a batch that have the same id.
type group struct {
	first, second *named // in their order; second is nil where there is one alone
	more          bool   // than two
}

// isPlain reports whether the frames are new and repeat none of each other: a start, an end, or both.
func (g *group) isPlain() bool {
	if g.more || !g.first.place.New {
		return false
	}
	return g.second == nil || g.second.place.New && g.first.kind == "start" && g.second.kind == "end"
}

// Suspects returns what there is to find out of the frames.
func (f *Frames) Suspects() *Suspects {
	type thing struct {
		key      schema.RunKey
		lane, id string
		call     bool
	}
	groups, of := make([]group, 0, len(f.named)), make([]int, len(f.named))
	known := make(map[thing]int, len(f.named))
	for i := range f.named {
		n := &f.named[i]
		what := thing{n.place.Key, n.place.Lane, n.id, n.call}
		at, ok := known[what]
		switch {
		case !ok:
			at = len(groups)
			known[what] = at
			groups = append(groups, group{first: n})
		case groups[at].second == nil:
			groups[at].second = n
		default:
			groups[at].more = true
		}
		of[i] = at
	}
	found := new(Suspects)
	for i := range f.named {
		if !groups[of[i]].isPlain() {
			found.closely = append(found.closely, &f.named[i])
		}
	}
	found.plain = slices.DeleteFunc(groups, func(g group) bool { return !g.isPlain() })
	return found
}

// knownMessages and knownCalls find the ids of which something is stored that a start or, where there is none, an end
// may repeat. LIMIT keeps PostgreSQL from reading a whole table for all of them.
const (
	knownMessages = `
select i from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[]) with ordinality as x(t, r, lane, id, starts, i)
where (select true from agent_run_messages m where m.koder_user_id = x.t and m.run_id = x.r and m.lane = x.lane
	and m.message_id = x.id and (m.kind = 'end' or m.kind = 'start' and x.starts) limit 1)`
	knownCalls = `
select i from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[]) with ordinality as x(t, r, lane, id, starts, i)
where (select true from agent_run_tool_calls c where c.koder_user_id = x.t and c.run_id = x.r and c.lane = x.lane
	and c.call_id = x.id and (c.kind = 'end' or x.starts) limit 1)`
)

// Probe queues the statements that look for the ids. They run before the rows of the frames are stored.
func (found *Suspects) Probe(queue func(row func(scan func(...any) error) error, text string, args ...any)) {
	for call, text := range map[bool]string{false: knownMessages, true: knownCalls} {
		var groups []*group
		var tenant, run, lane, id []string
		var starts []bool
		for i := range found.plain {
			n := found.plain[i].first
			if n.call != call {
				continue
			}
			groups = append(groups, &found.plain[i])
			tenant, run = append(tenant, n.place.Key.Tenant), append(run, n.place.Key.Run)
			lane, id, starts = append(lane, n.place.Lane), append(id, n.id), append(starts, n.kind == "start")
		}
		if len(groups) == 0 {
			continue
		}
		queue(func(scan func(...any) error) error {
			var i int
			if err := scan(&i); err != nil {
				return err
			}
			g := groups[i-1]
			found.known = append(found.known, g.first)
			if g.second != nil {
				found.known = append(found.known, g.second)
			}
			return nil
		}, text, tenant, run, lane, id, starts)
	}
}

// Find queues the statements that look closely, where it is known already that they must. They run after the rows of
// the frames are stored.
func (found *Suspects) Find(queue func(row func(scan func(...any) error) error, text string, args ...any)) {
	found.find(found.closely, queue)
}

// findKnown looks closely at what Probe has found.
func (found *Suspects) findKnown(ctx context.Context, tx Tx) (err error) {
	found.find(found.known, func(row func(scan func(...any) error) error, text string, args ...any) {
		if err == nil {
			err = tx.Each(ctx, row, text, args...)
		}
	})
	return err
}

func (found *Suspects) find(frames []*named,
	do func(row func(scan func(...any) error) error, text string, args ...any)) {
	for call, text := range map[bool]string{false: findMessages, true: findCalls} {
		var tenant, run, lane, kind, id []string
		var day []time.Time
		var seq []int64
		for _, n := range frames {
			if n.call != call {
				continue
			}
			tenant, run = append(tenant, n.place.Key.Tenant), append(run, n.place.Key.Run)
			lane, day, seq = append(lane, n.place.Lane), append(day, n.place.Day), append(seq, int64(n.place.Seq))
			kind, id = append(kind, n.kind), append(id, n.id)
		}
		if len(seq) > 0 {
			do(found.add, text, tenant, run, lane, day, seq, kind, id)
		}
	}
}

func (found *Suspects) add(scan func(...any) error) error {
	var s suspicion
	err := scan(&s.Key.Tenant, &s.Key.Run, &s.Day, &s.Name, &s.seq, &s.before, &s.later, &s.From, &s.starts)
	found.all = append(found.all, s)
	return err
}
