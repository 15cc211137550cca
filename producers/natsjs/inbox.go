package natsjs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/producers"
	"agentstream/schema"
)

// InboxSubject is what an Inbox listens on; the wildcards are the tenant and the run.
const InboxSubject = inboxPrefix + "*.*"

const (
	inboxPrefix = "ingest."
	inboxGroup  = "agentstream-edge" // queue group of all nodes: one of them takes each message
)

// InboxConfig is what an Inbox needs. Log, Take and Refuse are required.
type InboxConfig struct {
	Log *Log // whose connection is listened on, and whose streams the answers name

	// Take appends the posts of one run in their order and adds an answer for each to answers. It is called by
	// many goroutines, for a run by one at a time. It must not keep posts.
	Take func(ctx context.Context, key schema.RunKey, posts []producers.Post, answers []producers.Answer) []producers.Answer
	// Refuse returns the answer for producers.ErrBackpressure and producers.ErrClosed, with which the Inbox refuses
	// by itself.
	Refuse func(error) *producers.Refusal

	MaxPending int // bytes of messages that are taken and not answered; default 64 MiB. A run may hold a quarter
	MaxRuns    int // runs with such messages; default 4,096
	// Of both a tenant may hold as much as it leaves to others.
	MaxIdle      int           // goroutines that are kept for the next run; default 32
	DrainLimit   time.Duration // for what has been taken, at shutdown; default 15 s
	Logger       *slog.Logger  // nil discards
	WarnInterval time.Duration // between two log lines about messages without a reply; default 1 s
	Hooks        InboxHooks
}

// InboxHooks are called at what can be counted, from many goroutines. nil is off.
type InboxHooks struct {
	Refused func(code string) // a message, with the code of its reason
}

func (c InboxConfig) withDefaults() InboxConfig {
	set := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	set(&c.MaxPending, 64<<20)
	set(&c.MaxRuns, 4096)
	set(&c.MaxIdle, 32)
	if c.DrainLimit == 0 {
		c.DrainLimit = 15 * time.Second
	}
	if c.WarnInterval == 0 {
		c.WarnInterval = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c InboxConfig) validate() error {
	if c.Log == nil || c.Take == nil || c.Refuse == nil {
		return errors.New("natsjs: inbox: log, take and refuse are needed")
	}
	if c.MaxPending < 0 || c.MaxRuns < 0 || c.MaxIdle < 0 || c.DrainLimit < 0 || c.WarnInterval < 0 {
		return fmt.Errorf("natsjs: inbox: limits: %d bytes, %d runs, %d idle, %v drain, %v between warnings: negative",
			c.MaxPending, c.MaxRuns, c.MaxIdle, c.DrainLimit, c.WarnInterval)
	}
	return nil
}

// Inbox takes events that agents publish with any NATS client, under ingest.<tenant>.<run>. Its answers have the
// shape of JetStream's publish acknowledgements.
//
//	message ─▶ the run's queue ─▶ a goroutine, while the run has work ─▶ Take ─▶ answers
//
// What comes for a run while an append of it is under way collects, and goes into the next one.
type Inbox struct {
	cfg InboxConfig
	nc  *nats.Conn

	mu      sync.Mutex
	runs    map[schema.RunKey]*queue // with work
	tenants map[string]*share        // of those
	pending int                      // bytes that are taken and not answered
	idle    int                      // goroutines that wait for a run

	late    atomic.Bool    // the time for what had been taken is over
	work    chan *queue    // to a goroutine that waits
	active  sync.WaitGroup // runs with work
	workers sync.WaitGroup
	warned  warnings
}

// share is what a tenant holds of an inbox.
type share struct{ runs, bytes int }

// queue is one run's messages that wait. Its run is with one goroutine from the first message to the last.
type queue struct {
	key     schema.RunKey
	waiting postBatch
	held    int // bytes that are taken and not answered
}

// NewInbox checks the configuration. It starts nothing.
func NewInbox(cfg InboxConfig) (*Inbox, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Inbox{
		cfg: cfg, nc: cfg.Log.nc, runs: make(map[schema.RunKey]*queue), tenants: make(map[string]*share),
		work:   make(chan *queue),
		warned: warnings{log: cfg.Logger, every: cfg.WarnInterval},
	}, nil
}

// Bounds of what the client library holds before it is looked at, which takes hardly any time.
const (
	unreadMessages = 1 << 20
	unreadBytes    = 256 << 20
)

// goneWait is how long the library's goroutine is waited for when the connection was closed, in which case it
// may have ended before it could be made to report that.
const goneWait = time.Second

// Run takes messages until ctx ends. Then it takes no more, answers what it has taken, within DrainLimit, and
// returns. Run it once.
func (i *Inbox) Run(ctx context.Context) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	sub, err := i.nc.QueueSubscribe(InboxSubject, inboxGroup, func(m *nats.Msg) { i.receive(base, m) })
	if err != nil {
		return fmt.Errorf("natsjs: inbox: %w", err)
	}
	closed := make(chan struct{}) // no message comes any more
	sub.SetClosedHandler(func(string) { close(closed) })
	if err = sub.SetPendingLimits(unreadMessages, unreadBytes); err == nil {
		select {
		case <-closed:
			err = nats.ErrConnectionClosed
		case <-ctx.Done():
		}
	}
	limit := time.AfterFunc(i.cfg.DrainLimit, func() {
		i.late.Store(true)
		cut(context.DeadlineExceeded)
	})
	defer limit.Stop()
	i.stop(sub, closed)
	if err != nil {
		return fmt.Errorf("natsjs: inbox: %w", err)
	}
	return nil
}

// stop ends the subscription, waits until everything that was taken is answered, and ends the goroutines.
func (i *Inbox) stop(sub *nats.Subscription, closed <-chan struct{}) {
	if err := sub.Drain(); err == nil {
		<-closed
	} else { // the connection is closed
		gone := time.NewTimer(goneWait)
		defer gone.Stop()
		select {
		case <-closed:
		case <-gone.C:
		}
	}
	i.active.Wait()
	close(i.work)
	i.workers.Wait()
	if err := i.nc.FlushTimeout(goneWait); err != nil {
		i.cfg.Logger.Warn("nats ingest: the last answers may be lost", "err", err)
	}
}

// receive hands a message to its run. It never waits for the log.
func (i *Inbox) receive(ctx context.Context, m *nats.Msg) {
	key := keyOf(m.Subject)
	if m.Reply != "" && !mayAnswer(m.Reply) {
		i.note(key, "", codeBadReply)
		return
	}
	post := i.postOf(key, m)
	size := sizeOf(&post, m.Reply)
	i.mu.Lock()
	q := i.runs[key]
	own := i.tenants[key.Tenant]
	if own == nil {
		own = new(share)
	}
	busy := i.pending > 0 && i.pending+size > i.cfg.MaxPending || own.bytes > 0 &&
		own.bytes+size > i.cfg.MaxPending-i.pending
	if q == nil {
		busy = busy || own.runs >= i.cfg.MaxRuns-len(i.runs)
	} else {
		busy = busy || q.held+size > i.cfg.MaxPending/runShare
	}
	if busy {
		i.mu.Unlock()
		i.turnAway(key, m.Reply, producers.ErrBackpressure)
		return
	}
	i.pending += size
	own.bytes += size
	i.tenants[key.Tenant] = own
	if q != nil {
		q.held += size
		q.waiting.add(post, m.Reply)
		i.mu.Unlock()
		return
	}
	q = &queue{key: key, held: size}
	q.waiting.add(post, m.Reply)
	i.runs[key] = q
	own.runs++
	i.active.Add(1)
	waits := i.idle > 0
	if waits {
		i.idle--
	}
	i.mu.Unlock()
	if waits {
		i.work <- q
		return
	}
	i.workers.Go(func() { i.serve(ctx, q) })
}

// runShare is the part of all pending bytes that one run may hold, so that one that is flooded leaves room for
// the others.
const runShare = 4
