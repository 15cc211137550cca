package scrub_test

import (
	"context"
	"iter"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/persister/scrub"
	"agentstream/schema"
)

type scrubConfig = scrub.Config

type cutStore struct {
	scrub.RunStore
	c *cuts
}

func (s cutStore) Rewrite(ctx context.Context, w persister.Rewriting,
	fn func(event func(*persister.Rewritten) error) (persister.RunTexts, error)) error {
	return s.c.step(func() error {
		return s.RunStore.Rewrite(ctx, w, func(event func(*persister.Rewritten) error) (persister.RunTexts, error) {
			n := 0
			t, err := fn(func(e *persister.Rewritten) error {
				if n++; n != 3 {
					return event(e)
				}
				return s.c.step(func() error { return event(e) })
			})
			return t, err
		})
	})
}

type cutLetters struct {
	scrub.Letters
	c *cuts
}

func (l cutLetters) RewriteDeadLetter(ctx context.Context, d *deadletter.Stored) error {
	return l.c.step(func() error { return l.Letters.RewriteDeadLetter(ctx, d) })
}

type cutObjects struct {
	scrub.Objects
	c *cuts
}

func (o cutObjects) Write(ctx context.Context, key schema.RunKey, place persister.Place, last schema.Seq,
	packs iter.Seq2[schema.Pack, error]) (uri string, size int64, err error) {
	err = o.c.step(func() (err error) {
		uri, size, err = o.Objects.Write(ctx, key, place, last, packs)
		return err
	})
	return uri, size, err
}

func (o cutObjects) DropOthers(ctx context.Context, key schema.RunKey, place persister.Place) (n int, err error) {
	err = o.c.step(func() (err error) {
		n, err = o.Objects.DropOthers(ctx, key, place)
		return err
	})
	return n, err
}

func (o cutObjects) DropLarge(ctx context.Context, key schema.RunKey, day, ref string) error {
	return o.c.step(func() error { return o.Objects.DropLarge(ctx, key, day, ref) })
}

type cutLog struct {
	scrub.MessageLog
	c *cuts
}

func (l cutLog) Cut(ctx context.Context, key schema.RunKey, through uint64) (n int, err error) {
	err = l.c.step(func() (err error) {
		n, err = l.MessageLog.Cut(ctx, key, through)
		return err
	})
	return n, err
}

type cutBlobs struct {
	scrub.LogBlobs
	c *cuts
}

func (b cutBlobs) EraseBlob(ctx context.Context, key schema.RunKey, ref string) error {
	return b.c.step(func() error { return b.LogBlobs.EraseBlob(ctx, key, ref) })
}
