package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"agentstream/persister"
	"agentstream/schema"
)

// Reviser writes objects that take the place of others, with other lines of the same events.
type Reviser struct {
	archiver *Archiver
}

// NewReviser returns a Reviser. cfg is that of an Archiver.
func NewReviser(cfg ArchiverConfig) (*Reviser, error) {
	a, err := NewArchiver(cfg)
	if err != nil {
		return nil, err
	}
	return &Reviser{a}, nil
}

// Write writes an object with the packs of a run from its first event that is kept up to last, and reads it back. It
// returns the URI and the size, which the run's row does not name yet. The error wraps ErrHole when a pack is missing.
func (r *Reviser) Write(ctx context.Context, key schema.RunKey, place persister.Place, last schema.Seq,
	packs iter.Seq2[schema.Pack, error]) (uri string, size int64, err error) {
	revision := 1
	if was, _, err := nameIn(place.URI, key); err == nil {
		revision = revisionOf(was) + 1
	}
	name := nameRevision(key, place.Day, last, revision)
	if err := r.archiver.cfg.Store.Delete(ctx, name); err != nil { // of an attempt that was cut
		return "", 0, fmt.Errorf("blob: revise run %s: %w", key, err)
	}
	var ix *Index
	err = r.archiver.stream(ctx, name, func(out io.Writer) (err error) {
		ix, err = r.copy(out, key, place, last, packs)
		return err
	})
	if err != nil {
		return "", 0, fmt.Errorf("blob: revise run %s: %w", key, err)
	}
	o, err := r.archiver.archive.cache.reads.open(ctx, name)
	if err == nil && o.index.SHA256 != ix.SHA256 {
		err = fmt.Errorf("blob: %s: it holds other lines than were written: %w", name, ErrCorrupt)
	}
	if err == nil {
		err = o.verify(ctx)
	}
	if err != nil {
		return "", 0, errors.Join(err, r.archiver.discard(ctx, key, name))
	}
	return r.archiver.cfg.Base + name, o.size, nil
}

func (r *Reviser) copy(out io.Writer, key schema.RunKey, place persister.Place, last schema.Seq,
	packs iter.Seq2[schema.Pack, error]) (*Index, error) {
	w := newWriter(out, r.archiver.archive.cache.reads.codec, key, beginning(place))
	w.frame = r.archiver.cfg.Frame
	for p, err := range packs {
		if err == nil {
			err = w.Add(p)
		}
		if err != nil {
			return nil, err
		}
	}
	if w.head.Last != last {
		return nil, fmt.Errorf("event %d is not there, the newest is %d: %w", w.head.Last+1, last, ErrHole)
	}
	return w.Close()
}

// DropOthers removes the objects of a run that have the same or fewer events than the one that its row names, and
// returns their number.
func (r *Reviser) DropOthers(ctx context.Context, key schema.RunKey, place persister.Place) (n int, err error) {
	named, last, err := nameIn(place.URI, key)
	if err != nil {
		return 0, nil // it names none
	}
	store := r.archiver.cfg.Store
	for o, err := range store.List(ctx, key.Tenant+"/"+place.Day+"/"+key.Run+".") {
		if err != nil {
			return n, fmt.Errorf("blob: objects of run %s: %w", key, err)
		}
		if _, _, of, err := ParseName(o.Name); err != nil || of > last || o.Name == named {
			continue
		}
		if err := store.Delete(ctx, o.Name); err != nil {
			return n, fmt.Errorf("blob: objects of run %s: %w", key, err)
		}
		n++
	}
	return n, nil
}

// Large returns the blobs of a run that are kept as objects, and their content. Of one that cannot be read the content is the
// error.
func (r *Reviser) Large(ctx context.Context, key schema.RunKey, day string) iter.Seq2[schema.Blob, iter.Seq2[[]byte, error]] {
	return func(yield func(schema.Blob, iter.Seq2[[]byte, error]) bool) {
		failed := func(err error) iter.Seq2[[]byte, error] {
			return func(yield func([]byte, error) bool) { yield(nil, err) }
		}
		for o, err := range r.archiver.cfg.Store.List(ctx, largePrefix(key, day)) {
			if err != nil {
				yield(schema.Blob{}, failed(err))
				return
			}
			_, _, ref, err := ParseLargeName(o.Name)
			if err != nil {
				continue
			}
			blob, pieces, err := r.archiver.archive.cache.reads.large(ctx, o.Name)
			if err != nil {
				blob, pieces = schema.Blob{Ref: ref}, failed(err)
			}
			if !yield(blob, pieces) {
				return
			}
		}
	}
}

// DropLarge removes the object of a blob.
func (r *Reviser) DropLarge(ctx context.Context, key schema.RunKey, day, ref string) error {
	return r.archiver.cfg.Store.Delete(ctx, LargeName(key, day, ref))
}
