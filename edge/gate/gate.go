package gate

import (
	"cmp"
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/ends"
)

// Config sets a Gate up. The zero value has the defaults.
type Config struct {
	Streams     int // of HTTP/2, at a time; 0 is no limit
	Strangers   int // streams of HTTP/2 at a time whose caller is not known; default 256
	Connections int // that the HTTP server has, at a time; 0 is no limit
	Unknown     int // of them, those on which no caller was found yet; default 512

	// Share is what the bodies of a tenant hold that have come over HTTP/2 and that nobody has read; nil: they hold
	// nothing. It is safe for concurrent use, as its Shares are.
	Share func(tenant string) Share
}

// Bounds that need no setting.
const (
	strangersOfConn = 64   // streams of strangers on one connection
	maxRefused      = 1024 // refusals under way at a node
	maxLoose        = 4096 // streams at a node that are open without a request
	fewLoose        = 64   // of them, those that each connection may have
	maxLooseUnknown = 192  // both where no caller was found
	fewLooseUnknown = 4
	grace           = 300 * time.Millisecond // that the oldest connection of a stranger has
	patience        = 5 * time.Second        // with a connection that has more, or a stranger's that has no room
	unreadPatience  = 30 * time.Second       // with a caller's that has no room: its tenant's other streams may make some
	maxPause        = 64 * time.Millisecond  // between two looks at that
)

// Gate counts. Make it with New.
type Gate struct {
	cfg Config

	streams   atomic.Int64 // of HTTP/2
	strangers atomic.Int64 // of them, those whose caller is not known
	open      atomic.Int64 // of those, requests for what is open to everybody
	refused   atomic.Int64 // refusals that are being written
	wire      atomic.Int64 // streams of HTTP/2 that are open on the wire, whatever became of them here

	mu    sync.Mutex
	known list.List     // of *Conn, the oldest first
	new   list.List     // the same, on which no caller was found yet
	freed chan struct{} // has a place: a stranger has become known, or has left
}

// New makes a Gate.
func New(cfg Config) (*Gate, error) {
	if cfg.Streams < 0 || cfg.Strangers < 0 || cfg.Connections < 0 || cfg.Unknown < 0 {
		return nil, fmt.Errorf("gate: %d streams, %d of strangers, %d connections, %d of strangers: negative",
			cfg.Streams, cfg.Strangers, cfg.Connections, cfg.Unknown)
	}
	cfg.Strangers = cmp.Or(cfg.Strangers, 256)
	cfg.Unknown = cmp.Or(cfg.Unknown, 512)
	return &Gate{cfg: cfg, freed: make(chan struct{}, 1)}, nil
}

// Census is what a gate counts.
type Census struct {
	Open        int // streams of HTTP/2, on the wire
	Streams     int // of them, those that are requests here
	Strangers   int // of these, those whose caller is not known
	Connections int // that the HTTP server has
	Unknown     int // of them, those on which no caller was found yet
}

// Census counts.
func (g *Gate) Census() Census {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Census{Open: int(g.wire.Load()), Streams: int(g.streams.Load()), Strangers: int(g.strangers.Load()),
		Connections: g.known.Len() + g.new.Len(), Unknown: g.new.Len()}
}

// Pass is the place of one request. The zero value has none.
type Pass struct {
	g        *Gate
	conn     *Conn // nil: it is not known
	stream   bool  // it is one of HTTP/2
	stranger bool
	open     bool // it asks for what is open to everybody
	refused  bool
}

// Enter takes a place for a request on a connection, which may be nil; stream says that it is a stream of HTTP/2. The
// error wraps ends.ErrBusy: there is none. Leave returns it, after an error too.
func (g *Gate) Enter(p *Pass, c *Conn, stream bool) error {
	p.g, p.conn = g, c
	c.enterRequest()
	if !stream {
		return nil
	}
	p.stream, p.stranger = true, true
	n, strangers := max(g.streams.Add(1), g.wire.Load()), g.strangers.Add(1)
	own := c.admit(1)
	if g.cfg.Streams > 0 && n > int64(g.cfg.Streams) {
		return p.refuse("%d streams of HTTP/2", n-1)
	}
	if strangers > int64(g.cfg.Strangers) {
		return p.refuse("%d streams of callers who are not known", strangers-1)
	}
	if own > strangersOfConn && !c.isKnown() {
		return p.refuse("%d streams on a connection on which no caller is known", own-1)
	}
	return nil
}

// Open marks a request for what is open to everybody. Half of the strangers' places are for such requests: the others
// are for those who bring a credential. The error wraps ends.ErrBusy.
func (p *Pass) Open() error {
	if !p.stranger || p.open {
		return nil
	}
	p.open = true
	if n := p.g.open.Add(1); n > int64(p.g.cfg.Strangers+1)/2 {
		return p.refuse("%d streams that are open to everybody", n-1)
	}
	return nil
}

// refuse counts a refusal. A connection is closed when there are too many: the answers do not get through.
func (p *Pass) refuse(format string, n int64) error {
	p.meet()
	if p.refused = true; p.g.refused.Add(1) > maxRefused {
		p.conn.cut()
	}
	return fmt.Errorf(format+": %w", n, ends.ErrBusy)
}

// IsRefused reports whether there was no room. The answer must not wait for the client.
func (p *Pass) IsRefused() bool { return p.refused }

// Know marks the caller of a request as known, and its connection. Its tenant pays for bodies that nobody reads.
func (p *Pass) Know(tenant string) {
	p.conn.know()
	if p.stream && p.conn != nil {
		p.conn.debt.name(tenant)
	}
	p.meet()
}

// meet returns the places of a stranger.
func (p *Pass) meet() {
	if p.open {
		p.open = false
		p.g.open.Add(-1)
	}
	if p.stranger {
		p.stranger = false
		p.g.strangers.Add(-1)
		p.conn.admit(-1)
	}
}

// Stranger reports whether the caller of a request is not known.
func (p *Pass) Stranger() bool { return p.stranger || !p.stream && p.conn != nil && !p.conn.isKnown() }

// Conn is the connection of a request; nil: it is not known.
func (p *Pass) Conn() *Conn { return p.conn }

// Leave returns a place, once.
func (p *Pass) Leave() {
	if p.g == nil {
		return
	}
	p.meet()
	if p.stream {
		p.g.streams.Add(-1)
	}
	if p.refused {
		p.g.refused.Add(-1)
	}
	p.conn.leaveRequest()
	*p = Pass{}
}
