package natsjs

import (
	"context"
	"fmt"
	"time"

	"agentstream/tap"
)

// Bounds of the dead letters of one tap. Members count by themselves, and look again every so often: several of them may
// pass a bound by what they store meanwhile.
const (
	MaxLetters     = 10_000
	MaxLetterBytes = 64 << 20 // as they are stored, in base64

	countEvery = time.Minute
	fullEvery  = 5 * time.Second // while there is no room: somebody may have dropped some
)

// tally is how many dead letters a tap has, as far as this process knows.
type tally struct {
	count int
	bytes int
	at    time.Time // when they were counted
}

func (p *Places) hasRoom(t *tally, bytes int) bool {
	return t.count < p.most && t.bytes+bytes <= MaxLetterBytes
}

// Room implements tap.Letters.
func (p *Places) Room(ctx context.Context, name string) error {
	_, err := p.tallyFor(ctx, name, 1)
	return err
}

// putWithin stores a letter that is not stored yet, if there is room.
func (p *Places) putWithin(ctx context.Context, name, key string, letter []byte) error {
	t, err := p.tallyFor(ctx, name, len(letter))
	if err != nil {
		return err
	}
	if err := p.bucket.Put(ctx, key, letter); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.count++
	t.bytes += len(letter)
	return nil
}

// tallyFor returns what is kept of a tap when there is room for a letter of so many bytes. Otherwise the error wraps
// tap.ErrLettersFull.
func (p *Places) tallyFor(ctx context.Context, name string, bytes int) (*tally, error) {
	p.mu.Lock()
	t := p.tallies[name]
	room := t != nil && p.hasRoom(t, bytes)
	old := t == nil || time.Since(t.at) >= countEvery || !room && time.Since(t.at) >= fullEvery
	p.mu.Unlock()
	if old {
		var err error
		if t, err = p.countLetters(ctx, name); err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.tallies[name] = t
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasRoom(t, bytes) {
		return nil, fmt.Errorf("tap %s: %d dead letters, %d bytes: %w", name, t.count, t.bytes, tap.ErrLettersFull)
	}
	return t, nil
}

// countLetters counts the dead letters of a tap.
func (p *Places) countLetters(ctx context.Context, name string) (*tally, error) {
	values, err := p.bucket.List(ctx, letterKey(name, "*"))
	if err != nil {
		return nil, err
	}
	t := &tally{count: len(values), at: time.Now()}
	for _, v := range values {
		t.bytes += len(v.Data)
	}
	return t, nil
}
