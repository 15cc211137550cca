package agentstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"agentstream/schema"
)

// Publisher stores batches of many runs with few requests: what comes while a request is on its way goes into the next
// one, together. It is safe for concurrent use, holds no connection, and needs no Close.
type Publisher struct {
	c *Client

	mu      sync.Mutex
	waiting []*published // in the order in which they came
	busy    map[string]bool
	active  int  // requests
	alone   bool // the server takes a request for each run
}

// published is one call of AppendLines.
type published struct {
	ctx     context.Context
	run     string
	lines   []byte
	n       int  // of them
	apart   bool // it is for a request of its run alone
	receipt Receipt
	err     error
	done    chan struct{}
}

// Bounds of a Publisher.
const (
	publishRequests = 4       // at a time, of different runs
	publishBytes    = 1 << 20 // in one request; a batch that is larger goes alone
)

// Publisher returns one for all who share the client. It starts nothing.
func (c *Client) Publisher() *Publisher { return &Publisher{c: c, busy: make(map[string]bool)} }

// AppendLines is like Run.AppendLines, with a key of its own. Batches of one run are stored in the order of the calls.
func (p *Publisher) AppendLines(ctx context.Context, run string, ndjson []byte) (Receipt, error) {
	b := &published{ctx: ctx, run: run, done: make(chan struct{})}
	if err := schema.ValidRunID(run); err != nil {
		return b.receipt, err
	}
	b.address(ndjson)
	p.mu.Lock()
	p.waiting = append(p.waiting, b)
	p.sendWaiting()
	p.mu.Unlock()
	select {
	case <-b.done:
		return b.receipt, b.err
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
}

// address puts the run into each line.
func (b *published) address(ndjson []byte) {
	for line := range bytes.Lines(ndjson) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		b.n++
		read := bytes.Clone(line)
		_, err := schema.ReadAddress(read)
		b.apart = b.apart || !bytes.Equal(read, line) // a field of the event that would be taken for the line's key
		if errors.Is(err, schema.ErrNoRun) {
			b.lines = append(append(append(b.lines, `{"run_id":"`...), b.run...), '"')
			if line = bytes.TrimLeft(line[1:], " \t"); line[0] != '}' {
				b.lines = append(b.lines, ',')
			}
		}
		b.lines = append(append(b.lines, line...), '\n')
	}
}

// sendWaiting sends requests while something waits whose run is in none. It needs mu.
func (p *Publisher) sendWaiting() {
	for p.active < publishRequests {
		var batch, left []*published
		size, held := 0, make(map[string]bool)
		for _, b := range p.waiting {
			apart := p.alone || b.apart || len(batch) > 0 && batch[0].apart
			if p.busy[b.run] || held[b.run] || len(batch) > 0 && (apart || size+len(b.lines) > publishBytes) {
				left, held[b.run] = append(left, b), true // none overtakes it
				continue
			}
			batch, size = append(batch, b), size+len(b.lines)
			p.busy[b.run] = true
		}
		if p.waiting = left; len(batch) == 0 {
			return
		}
		p.active++
		go p.send(batch)
	}
}

// send stores a batch of each of several runs.
func (p *Publisher) send(batch []*published) {
	if len(batch) == 1 || p.sendAll(batch) {
		for _, b := range batch {
			if b.err == nil && b.receipt.First == 0 {
				b.receipt, b.err = p.c.Run(b.run).AppendLines(b.ctx, "", b.lines)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range batch {
		delete(p.busy, b.run)
		close(b.done)
	}
	p.active--
	p.sendWaiting()
}

// sendAll sends one request. left reports that the server has none for several runs, and they are to
// have requests of their own. What is to be tried again is, under the same key.
func (p *Publisher) sendAll(batch []*published) (left bool) {
	var body []byte
	for _, b := range batch {
		body = append(body, b.lines...)
	}
	ctx, stop := allOf(batch)
	defer stop()
	key, pauses := rand.Text(), backoff{giveUp: p.c.cfg.GiveUp}
	for {
		var answer []byte
		_, err := p.c.call(ctx, request{method: http.MethodPost, target: p.c.url("v1", "agent", "events"),
			contentType: typeNDJSON, key: key, body: body}, &answer)
		if e := new(Error); errors.As(err, &e) &&
			(e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed) {
			p.mu.Lock()
			p.alone = true
			p.mu.Unlock()
			return true
		}
		if err != nil {
			fail(batch, err)
			return false
		}
		wait, why := settle(batch, answer)
		if why == nil {
			return false
		}
		d, err := pauses.pause(wait, why)
		if err == nil {
			p.c.retrying(ctx, why, d)
			err = sleep(ctx, d)
		}
		if err != nil {
			fail(batch, err)
			return false
		}
	}
}

// allOf returns a context that ends when nobody waits any more.
func allOf(batch []*published) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(batch[0].ctx))
	var mu sync.Mutex
	left := len(batch)
	var stops []func() bool
	for _, b := range batch {
		stops = append(stops, context.AfterFunc(b.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				cancel(context.Cause(b.ctx))
			}
		}))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

func fail(batch []*published, err error) {
	for _, b := range batch {
		if b.receipt.First == 0 && b.err == nil {
			b.err = err
		}
	}
}

// settle reads the answers to a batch. It returns why the same is to be sent again, and after how long; nil: all is
// known.
func settle(batch []*published, answer []byte) (wait time.Duration, again error) {
	first := make(map[string]int, len(batch)) // of a run's lines, counted from 1
	runs := make(map[string]*published, len(batch))
	n := 1
	for _, b := range batch {
		runs[b.run], first[b.run] = b, n
		n += b.n
	}
	r := bufio.NewScanner(bytes.NewReader(answer))
	r.Buffer(nil, len(answer)+1)
	for r.Scan() {
		var a struct {
			Receipt
			Line  int
			Run   string `json:"run_id"`
			Error *struct {
				Code, Message, Field string
				Status               int
				Retry                int `json:"retry_after"`
			}
		}
		if json.Unmarshal(r.Bytes(), &a) != nil {
			continue
		}
		b := runs[a.Run]
		if b == nil { // a line that does not say whose it is
			for _, other := range batch {
				if a.Line >= first[other.run] && a.Line < first[other.run]+other.n {
					b = other
				}
			}
		}
		if b == nil {
			continue
		}
		if a.Error == nil {
			b.receipt = a.Receipt
			continue
		}
		err := &Error{Status: a.Error.Status, Code: a.Error.Code, Message: a.Error.Message, Field: a.Error.Field,
			Line:       a.Line - first[b.run] + 1,
			RetryAfter: time.Duration(a.Error.Retry) * time.Second}
		if err.RetryAfter > 0 {
			wait, again = max(wait, err.RetryAfter), err
		} else if b.err == nil {
			b.err = err
		}
	}
	if again == nil {
		fail(batch, fmt.Errorf("the server has not answered for the run: %w", ErrUnavailable))
	}
	return wait, again
}
