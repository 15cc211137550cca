package load

import (
	"context"
	"errors"
	"fmt"

	"agentstream/producers"
	"agentstream/schema"
)

// publishers publishes with the SDK: one Publisher for each run, which packs what waits.
type publishers struct {
	answers *answers
	cfg     Config
	pubs    map[int]*producers.Publisher
	open    chan pending // published and unanswered, oldest first
	ended   chan struct{}
}

type pending struct {
	unit
	producers.Pending
}

// sdkDepth is how many units of one writer may be unanswered: what is to be seen is the SDK's own
// limit, which its buffer makes.
const sdkDepth = 4096

func newPublishers(ctx context.Context, cfg Config, a *answers) *publishers {
	p := &publishers{answers: a, cfg: cfg, pubs: map[int]*producers.Publisher{}, open: make(chan pending, sdkDepth),
		ended: make(chan struct{})}
	go p.wait(ctx)
	return p
}

func (p *publishers) write(ctx context.Context, u unit) error {
	pub := p.pubs[u.run]
	if pub == nil {
		var err error
		key := schema.RunKey{Tenant: p.cfg.Tenant, Run: p.answers.ledger.names[u.run]}
		if pub, err = producers.New(producers.Config{Log: p.cfg.Log, Key: key}); err != nil {
			return fmt.Errorf("publish %s: %w", key, err)
		}
		p.pubs[u.run] = pub
	}
	size := p.cfg.Size - len(linePrefix) - len(lineSuffix)
	events := make([]schema.Event, u.count)
	payloads := make([]byte, 0, u.count*size) // they are the publisher's from now on
	for i := range events {
		from := len(payloads)
		payloads = appendPayload(payloads, size, mark{due: u.due, run: u.run, n: u.first + int64(i)})
		events[i] = schema.Event{Type: "text.delta", Payload: payloads[from:len(payloads):len(payloads)]}
	}
	w, err := pub.Publish(ctx, events...)
	if err != nil {
		return fmt.Errorf("publish %s: %w", p.answers.ledger.names[u.run], err)
	}
	select {
	case p.open <- pending{u, w}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("load: stopped: %w", context.Cause(ctx))
	}
}

// flush has nothing to do: a Publisher sends at once when it is idle.
func (p *publishers) flush() error { return nil }

func (p *publishers) close(ctx context.Context) error {
	close(p.open)
	errs := make([]error, 0, len(p.pubs))
	for run, pub := range p.pubs {
		if err := pub.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.answers.ledger.names[run], err))
		}
	}
	<-p.ended // every Pending is decided: its Publisher is closed
	return errors.Join(errs...)
}

// wait takes the answers. Units of several runs are waited for in the order in which they were
// published, so a latency is at most too high.
func (p *publishers) wait(ctx context.Context) {
	defer close(p.ended)
	for w := range p.open {
		_, err := w.Wait(context.WithoutCancel(ctx))
		p.answers.noteAnswer(w.unit, err)
	}
}
