package metis

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/ordered"
)

// story is all that a projector remembers of a run.
type story struct {
	run      string     // id; "" before the first record
	last     schema.Seq // the newest record
	newest   dialect.Place
	reading  *assemble.Run
	sessions map[string]*session           // by child; "" is the run itself
	working  ordered.Map[string, struct{}] // children whose sessions have not ended
	by       *atomic.Bool                  // set when a copy shares sessions; nil with them
	used     *session                      // used last, of those that may be changed
	workers  tally                         // events of all workers
	known    int                           // sessions that were ever known
	spans    int                           // of workers
	deleted  bool
}

// session is the run, or a child of it. One that copies share is replaced, never changed.
type session struct {
	child, parent string // "" is the run
	path          []byte // ids from the run to it, with slashes between them: Frame.Lane
	order, depth  int
	by            *atomic.Bool
	ts            string // of its beginning
	workspace     string
	model         string // the newest
	call          string // tool_use_id that delegates to it
	started       dialect.Place
	prompt        asked // of a worker
	ended         bool
	newest        dialect.Place
	tally         tally

	turn      turn
	turns     int
	queue     []asked
	cancelled cancellation
	models    ordered.Map[int, *modelCall]   // by serial
	byID      ordered.Map[string, []int]     // serials of those that have an id of the log's
	serial    int                            // of the newest
	completed dialect.Place                  // newest tool.completed of the turn
	answered  dialect.Place                  // newest llm.call_completed
	open      *openMessage                   // nil: none is
	whole     *openMessage                   // one that begins and ends with the record at hand
	calls     ordered.Map[string, *toolCall] // by id
	waiting   int                            // of those, that were not called
	requests  []request
	total     totals

	recent []span // the newest messages
	spoken int    // messages
	said   int    // bytes of the newest one of the assistant
}

// totals are sums over a session, or a turn.
type totals struct {
	models, tools int
	used          usage
}

const (
	// maxSessions bounds the sessions that are remembered. Beyond it those that have ended are forgotten, and old ones.
	maxSessions = 1 << 12
	// maxText bounds texts of a record that are remembered, in bytes.
	maxText = 1 << 10
)

func (p *story) clone() story {
	if p.by != nil {
		p.by.Store(true)
	}
	c := *p
	c.used, c.reading, c.workers = nil, p.reading.Clone(), slices.Clone(p.workers)
	c.working = p.working.Clone()
	return c
}

func (p *story) size() int {
	n := 512 + p.reading.Size() + 24*len(p.workers)
	for child, s := range p.sessions {
		n += 512 + 2*len(child) + len(s.path) + len(s.workspace) + len(s.model) + len(s.call) + 24*cap(s.tally) +
			128*cap(s.queue) + 384*s.models.Len() + 384*s.calls.Len() + 128*cap(s.requests) + 48*cap(s.recent)
		if s.open != nil {
			n += 256
		}
	}
	return n
}

func (s *session) clone(by *atomic.Bool) *session {
	c := *s
	c.by, c.tally, c.queue = by, slices.Clone(s.tally), slices.Clone(s.queue)
	c.requests, c.recent = slices.Clone(s.requests), slices.Clone(s.recent)
	c.byID, c.models, c.calls = s.byID.Clone(), s.models.Clone(), s.calls.Clone() // find and modelOf copy what is changed
	if s.open != nil {
		open := *s.open
		c.open = &open
	}
	return &c
}

// id returns the session's id.
func (s *session) id(run string) string { return cmp.Or(s.child, run) }

// within reports whether a session is that of a child, or of one below it.
func (s *session) within(child string) bool { return inLane(s.path, child, true) }

// of returns the session of a child, or of the run itself (""), which may be changed.
func (p *Projector) of(child string) *session {
	if p.used != nil && p.used.child == child && !p.by.Load() {
		return p.used
	}
	if p.by == nil || p.by.Load() {
		if p.sessions = maps.Clone(p.sessions); p.sessions == nil {
			p.sessions = map[string]*session{}
		}
		p.by = new(atomic.Bool)
	}
	s := p.sessions[child]
	switch {
	case s == nil: // it was forgotten
		s = p.meet(child, "")
	case s.by != p.by:
		s = s.clone(p.by)
		p.sessions[child] = s
	}
	p.used = s
	return s
}

// meet makes a session known.
func (p *Projector) meet(child, parent string) *session {
	s := &session{child: child, parent: parent, order: p.known, by: p.by, ts: string(p.rec.ts)}
	p.known++
	s.path = []byte(p.run)
	if up := p.sessions[parent]; child != "" && up != nil {
		s.depth, s.workspace, s.model = up.depth+1, up.workspace, up.model
		s.path = slices.Concat(up.path, []byte{'/'}, []byte(child))
	}
	if len(p.sessions) >= maxSessions {
		maps.DeleteFunc(p.sessions, func(_ string, s *session) bool {
			gone := s.child != "" && s.child != parent && (s.ended || s.order < p.known-maxSessions/2)
			if gone {
				p.spans -= len(s.recent)
				p.working.Delete(s.child)
			}
			return gone
		})
	}
	p.sessions[child] = s
	if child != "" {
		p.working.Set(child, struct{}{})
	}
	return s
}
