package natsjs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/producers"
)

// silence notices a stream that answers no publish any more though it can be read. A single server does that to a
// stream whose disk was full, until it is begun anew. Nobody is then kept waiting for an answer, but for one who tries,
// once a second. A stream with replicas is never silent: its leader leaves when its disk is full, and one that can be
// read and stores nothing has lost its followers, or has been cut off from them. Appends to it wait their time. The
// zero silence is of a stream that answers.
type silence struct {
	row atomic.Bool // publishes in a row were not answered

	mu    sync.Mutex
	since time.Time // the first of them was sent
	last  time.Time // it was given up
	shut  bool      // callers are refused at once
	asks  bool      // a caller is finding out whether the stream can be read
	tried time.Time // the last one who was began to wait, or gave up
	conn  uint64    // reconnections until then: another server may have another disk

	look   sync.Mutex
	looked time.Time // when it was asked whether there is such a stream
	gone   bool      // there was none
}

// lookFresh is how old the answer may be to the question whether there is a stream.
const lookFresh = 100 * time.Millisecond

const (
	silenceWait = time.Second            // waited in vain for so long, a publish counts; so long do those wait who try
	silenceRead = 500 * time.Millisecond // for the answer to the question whether the stream can be read
)

// enter refuses with producers.ErrFull while the stream is silent. Otherwise it returns how long an answer is to be
// waited for, 0: as long as ctx lasts.
func (s *silence) enter(nc *nats.Conn, stream string) (time.Duration, error) {
	if !s.row.Load() {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.shut:
		return 0, nil
	case nc.Stats().Reconnects != s.conn || !nc.IsConnected():
		s.clear()
		return 0, nil
	case time.Since(s.tried) >= silenceWait:
		s.tried = time.Now()
		return silenceWait, nil
	}
	return 0, fmt.Errorf("%s can be read and answers no publish since %s, as with a full disk: %w",
		stream, s.since.UTC().Format(time.RFC3339), producers.ErrFull)
}

// noteStored notes that a message was stored.
func (s *silence) noteStored() {
	if s.row.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clear()
	}
}

// noteUnanswered notes that a publish was not answered, which was sent at a time. The stream is silent when one
// that was sent before had been given up by then, or this one was enough; and it can be read.
func (s *silence) noteUnanswered(nc *nats.Conn, stream string, sent time.Time, enough bool) {
	now := time.Now()
	if now.Sub(sent) < silenceWait*9/10 || !nc.IsConnected() {
		return
	}
	s.mu.Lock()
	if s.since.IsZero() {
		s.since, s.last = sent, now
		s.row.Store(true)
	} else if sent.After(s.last) {
		enough = true
	}
	if s.shut { // who tried has waited in vain
		s.tried, enough = now, false
	}
	ask := enough && !s.asks
	s.asks = s.asks || ask
	s.mu.Unlock()
	if !ask {
		return
	}
	readable := readableAlone(nc, stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks = false
	if !readable {
		return
	}
	s.shut = !s.since.IsZero() // else a message was stored meanwhile
	s.tried, s.conn = time.Now(), nc.Stats().Reconnects
}

// readableAlone reports whether a stream has no replicas and can be read.
func readableAlone(nc *nats.Conn, stream string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), silenceRead)
	defer cancel()
	replicas, err := natskit.Replicas(ctx, nc, stream)
	if err != nil || replicas > 1 {
		return false
	}
	_, err = natskit.LastFromLeader(ctx, nc, stream, ">")
	return err == nil || errors.Is(err, natskit.ErrNoMessage)
}

// missing reports whether the servers answer that there is no such stream, as they have a moment ago at the earliest:
// all whose appends are not answered ask it.
func (s *silence) missing(ctx context.Context, nc *nats.Conn, stream string) bool {
	s.look.Lock()
	defer s.look.Unlock()
	if time.Since(s.looked) >= lookFresh && nc.IsConnected() {
		s.gone = natskit.Missing(ctx, nc, stream)
		s.looked = time.Now()
	}
	return s.gone
}

// clear is called with mu.
func (s *silence) clear() {
	s.row.Store(false)
	s.since, s.last, s.shut = time.Time{}, time.Time{}, false
}

// failFastKeys refuses what its bucket does not answer.
type failFastKeys struct {
	producers.Keys
	nc *nats.Conn
	silence
}

// FailFast returns keys, of a bucket that OpenKeys has opened, for which nobody waits once the bucket's stream stores
// nothing any more: Begin then refuses at once, with producers.ErrFull.
func FailFast(nc *nats.Conn, keys *Keys) producers.Keys { return &failFastKeys{Keys: keys, nc: nc} }

const keysStream = "KV_" + natskit.KeysBucket

// keysWait is how long the bucket must have been waited for in vain. Nothing has been stored meanwhile, but reads of
// its leader are answered: there need not be a second one who waits.
const keysWait = 4 * time.Second

// Claim is that of the bucket.
func (k *failFastKeys) Claim(ctx context.Context, id string, r producers.KeyRecord) (producers.KeyRecord, error) {
	wait, err := k.enter(k.nc, keysStream)
	if err != nil {
		return r, fmt.Errorf("natsjs: keys: begin %s: %w", id, err)
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	sent := time.Now()
	rec, err := k.Keys.Claim(ctx, id, r)
	switch {
	case err == nil:
		k.noteStored()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		k.noteUnanswered(k.nc, keysStream, sent, time.Since(sent) >= keysWait)
	}
	return rec, err
}
