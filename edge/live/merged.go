package live

import (
	"cmp"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// member is one of the subscriptions that a session serves. It has everything up to a place.
type member struct {
	id     string
	choice dialect.Selection // nil: all frames
	from   dialect.Place
}

// mergedSelection selects what any of several members is shown, each after its own position. It belongs to one
// session.
type mergedSelection struct {
	members []member
	until   schema.Seq // the last of their places: behind it they differ in their selections alone
	at      schema.Seq // of the record whose frames are asked for
}

// Key is empty: a session that is not behind all places is not shared.
func (j *mergedSelection) Key() string { return "" }

func (j *mergedSelection) Match(f *dialect.Frame) bool {
	for i := range j.members {
		m := &j.members[i]
		behind := j.at > m.from.Seq || j.at == m.from.Seq && f.Slot > m.from.Slot
		if behind && (m.choice == nil || m.choice.Match(f)) {
			return true
		}
	}
	return false
}

// union shows what any of several selections does.
type union struct {
	key string
	of  []dialect.Selection
}

func (u *union) Key() string { return u.key }

func (u *union) Match(f *dialect.Frame) bool {
	return slices.ContainsFunc(u.of, func(s dialect.Selection) bool { return s.Match(f) })
}

// unite returns a selection that shows what any member's does.
func unite(members []member) dialect.Selection {
	var of []dialect.Selection
	for _, m := range members {
		if m.choice == nil {
			return nil
		}
		of = append(of, m.choice)
	}
	slices.SortFunc(of, func(a, b dialect.Selection) int { return strings.Compare(a.Key(), b.Key()) })
	of = slices.CompactFunc(of, func(a, b dialect.Selection) bool { return a.Key() == b.Key() })
	if len(of) == 1 {
		return of[0]
	}
	u := &union{of: of}
	for _, s := range of {
		u.key += s.Key() + "\x00"
	}
	return u
}

// join makes a subscription that was just opened also those that are shown the same frames but for their selections:
// one session serves all, and goes on where the first of them does.
func (c *Conversation) join(s *subscription) {
	own := &s.members[0]
	own.choice, own.from = s.req.Select, s.req.Cursor.Place
	if own.from.Seq == 0 {
		own.from = dialect.Place{Seq: s.ss.After, Slot: dialect.MaxSlot}
	}
	place := own.from
	if other := c.like(s); other != nil {
		c.halt(other)
		s.members = append(other.members, s.members...)
		c.replace(other, s)
	}
	s.openSession(place)
}

// part takes a member away from others, and returns the seq of the last record that it was shown, or the place where it
// began. The others go on.
func (c *Conversation) part(s *subscription, id string) schema.Seq {
	c.halt(s)
	i := s.member(id)
	at := s.members[i].from.Seq
	rest := c.newSubscription()
	rest.req, rest.members = s.req, slices.Delete(slices.Clone(s.members), i, i+1)
	c.replace(s, rest)
	c.mu.Lock()
	c.let(1)
	c.mu.Unlock()
	rest.openSession(dialect.Place{})
	c.fresh = append(c.fresh, rest)
	return at
}

// halt stops a subscription and notes what its members have been shown.
func (c *Conversation) halt(s *subscription) {
	c.stop(s)
	for i := range s.members {
		if m := &s.members[i]; m.from.Seq <= s.report.Seq {
			m.from = dialect.Place{Seq: s.report.Seq, Slot: dialect.MaxSlot}
		}
	}
}

// openSession opens the session where the first of the members goes on, unless it was opened at that position,
// and selects for all. They end with what keeps it from that.
func (s *subscription) openSession(opened dialect.Place) {
	first := slices.MinFunc(s.members, func(a, b member) int { return comparePlaces(a.from, b.from) }).from
	if first != opened {
		req := s.req
		if req.Cursor, req.Newest = (dialect.Cursor{Seq: first.Seq}), false; first.Slot < dialect.MaxSlot {
			req.Cursor = dialect.Cursor{Place: first}
		}
		s.ss.Close()
		s.ss, s.over = s.conv.open(s, req)
	}
	j := &mergedSelection{members: s.members}
	for _, m := range s.members {
		j.until = max(j.until, m.from.Seq)
	}
	s.ss.merged, s.ss.req.Select = j, unite(s.members)
}

func comparePlaces(a, b dialect.Place) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Slot, b.Slot))
}

// like returns another subscription that is shown the same frames but for its selection; nil: there is none.
func (c *Conversation) like(s *subscription) *subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.subs {
		if a, b := &other.req, &s.req; other != s && a.Run == b.Run && a.Filter.Key() == b.Filter.Key() &&
			a.Speed == b.Speed &&
			other.ss.projection() == s.ss.projection() {
			return other
		}
	}
	return nil
}
