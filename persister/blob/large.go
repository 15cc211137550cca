package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"agentstream/persister"
	"agentstream/schema"
)

// Large reads the blobs of runs in the log: content that is too large for an event.
type Large interface {
	// List returns the blobs of a run. Their types may be missing.
	List(ctx context.Context, key schema.RunKey) ([]schema.Blob, error)
	// Get returns a blob and its pieces. The error wraps schema.ErrNoBlob when the run has no such blob.
	Get(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error)
}

const largeSuffix = ".blob"

// LargeName returns the name of the object of a run's blob: <tenant>/<day>/<run>.<ref>.blob.
func LargeName(key schema.RunKey, day, ref string) string {
	return largePrefix(key, day) + strings.TrimPrefix(ref, schema.BlobPrefix) + largeSuffix
}

// largePrefix is the beginning of the names of all blobs of a run. No seq in the name of an object of events begins
// with it.
func largePrefix(key schema.RunKey, day string) string {
	return key.Tenant + "/" + day + "/" + key.Run + "." + schema.BlobPrefix
}

// ParseLargeName parses a name of LargeName. Any other name is an error.
func ParseLargeName(name string) (key schema.RunKey, day, ref string, err error) {
	parts := strings.Split(name, "/")
	if len(parts) == 3 {
		var file string
		key.Tenant, day = parts[0], parts[1]
		key.Run, file, _ = strings.Cut(parts[2], ".")
		ref = strings.TrimSuffix(file, largeSuffix)
	}
	if schema.ValidBlobRef(ref) != nil || schema.ValidTenant(key.Tenant) != nil || schema.ValidRunID(key.Run) != nil ||
		!validDay(day) ||
		LargeName(key, day, ref) != name {
		return schema.RunKey{}, "", "", fmt.Errorf("blob: %q names no blob of a run", name)
	}
	return key, day, ref, nil
}

// ValidName returns nil when name is one that Name or LargeName returns, else an error.
func ValidName(name string) error {
	if _, _, _, err := ParseLargeName(name); err == nil {
		return nil
	}
	_, _, _, err := ParseName(name)
	return err
}

// largeHead is the first line of the object of a blob. The content follows it unchanged.
type largeHead struct {
	Type string `json:"content_type"`
	Size int64  `json:"bytes"`
}

// maxLargeHead bounds the first line, in bytes: a media type has at most 255.
const maxLargeHead = 2 << 10

// large returns a blob from the objects. The error wraps schema.ErrNoBlob when it does not exist, or ErrCorrupt.
func (r *reads) large(ctx context.Context, name string) (schema.Blob, iter.Seq2[[]byte, error], error) {
	_, _, ref, err := ParseLargeName(name)
	if err != nil {
		return schema.Blob{}, nil, err
	}
	first, size, err := r.read(ctx, name, 0, maxLargeHead)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %w", schema.ErrNoBlob, err)
	}
	if err != nil {
		return schema.Blob{}, nil, fmt.Errorf("blob: open %s: %w", name, err)
	}
	line, _, whole := bytes.Cut(first, []byte{'\n'})
	var head largeHead
	at := int64(len(line)) + 1
	if err := json.Unmarshal(line, &head); !whole || err != nil || head.Size < 0 || at+head.Size != size {
		return schema.Blob{}, nil, fmt.Errorf("blob: open %s: its first line does not fit %d bytes: %w", name, size,
			ErrCorrupt)
	}
	return schema.Blob{Ref: ref, Type: head.Type, Size: head.Size}, func(yield func([]byte, error) bool) {
		for at < size {
			n := min(schema.BlobPiece, size-at)
			piece, _, err := r.read(ctx, name, at, n)
			if err == nil && int64(len(piece)) != n {
				err = fmt.Errorf("%d bytes came of %d: %w", len(piece), n, ErrCorrupt)
			}
			if err != nil {
				yield(nil, fmt.Errorf("blob: %s: %w", name, err))
				return
			}
			if at += n; !yield(piece, nil) {
				return
			}
		}
	}, nil
}

// Blob returns a blob of an archived run and its pieces, each of schema.BlobPiece bytes but the last. The error wraps
// schema.ErrNoBlob when there is no such blob, and schema.ErrUnavailable when that is not known.
func (a *Archive) Blob(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error],
	error) {
	if a.cfg.Store == nil {
		return schema.Blob{}, nil, fmt.Errorf("blob: %s of %s: %w: %w", ref, key, schema.ErrNoBlob, ErrNoStore)
	}
	place, err := a.cfg.Tables.Place(ctx, key)
	if err != nil {
		return schema.Blob{}, nil, fmt.Errorf("blob: %s of %s: %w: %w", ref, key, schema.ErrUnavailable, err)
	}
	if place.Day == "" || place.Deleted {
		return schema.Blob{}, nil, fmt.Errorf("blob: %s of %s: %w", ref, key, schema.ErrNoBlob)
	}
	blob, pieces, err := a.cache.reads.large(ctx, LargeName(key, place.Day, ref))
	if err != nil && !errors.Is(err, schema.ErrNoBlob) {
		err = fmt.Errorf("%w: %w", schema.ErrUnavailable, err)
	}
	return blob, pieces, err
}

// VerifyLarge reads all of the object of a blob, compares it with the digest in its name, and returns its size.
func VerifyLarge(ctx context.Context, s ObjectStore, name string) (int64, error) {
	return (&reads{store: s, timeout: DefaultTimeout}).verifyLarge(ctx, name)
}

func (r *reads) verifyLarge(ctx context.Context, name string) (int64, error) {
	blob, pieces, err := r.large(ctx, name)
	if err != nil {
		return 0, err
	}
	sum := schema.NewBlobSum(blob.Type)
	for piece, err := range pieces {
		if err != nil {
			return 0, err
		}
		_, _ = sum.Write(piece) // never fails
	}
	if sum.Ref() != blob.Ref {
		return 0, fmt.Errorf("blob: %s: its content is not what its name says: %w", name, ErrCorrupt)
	}
	return blob.Size, nil
}

// large writes the blobs of a run as objects, those that do not exist yet, and reads them back.
func (a *Archiver) large(ctx context.Context, key schema.RunKey, day string) error {
	if a.cfg.Large == nil {
		return nil
	}
	list, err := a.cfg.Large.List(ctx, key)
	if err != nil {
		return err
	}
	for _, b := range list {
		if err := a.oneLarge(ctx, key, LargeName(key, day, b.Ref), b.Ref); err != nil {
			return err
		}
	}
	return nil
}

func (a *Archiver) oneLarge(ctx context.Context, key schema.RunKey, name, ref string) error {
	reads := a.archive.cache.reads
	if _, _, err := reads.large(ctx, name); !errors.Is(err, schema.ErrNoBlob) {
		return err // an earlier attempt has written it: objects are never changed
	}
	err := a.putLarge(ctx, key, name, ref)
	if errors.Is(err, schema.ErrNoBlob) {
		return nil // it was removed meanwhile
	}
	if err == nil || errors.Is(err, ErrExists) {
		_, err = reads.verifyLarge(ctx, name)
	}
	if errors.Is(err, ErrCorrupt) {
		err = errors.Join(err, a.cfg.Store.Delete(ctx, name)) // the next attempt writes it again
	}
	return err
}

func (a *Archiver) putLarge(ctx context.Context, key schema.RunKey, name, ref string) error {
	blob, pieces, err := a.cfg.Large.Get(ctx, key, ref)
	if err != nil {
		return err
	}
	head, err := json.Marshal(largeHead{Type: blob.Type, Size: blob.Size})
	if err != nil {
		return err
	}
	return a.stream(ctx, name, func(w io.Writer) error {
		_, err := w.Write(append(head, '\n'))
		for piece, perr := range pieces {
			if err == nil {
				err = perr
			}
			if err == nil {
				_, err = w.Write(piece)
			}
			if err != nil {
				return err
			}
		}
		return err
	})
}

// removeLarge removes the objects of a run's blobs together with the object of its events, unless the run names
// another object by now.
func (r Remover) removeLarge(ctx context.Context, key schema.RunKey, uri string) error {
	name, _, err := nameIn(uri, key)
	if err != nil {
		return err
	}
	if r.Places != nil {
		place, err := r.Places.Place(ctx, key)
		if err != nil {
			return err
		}
		if hasOtherObject(place, uri) {
			return nil
		}
	}
	for o, err := range r.Store.List(ctx, largePrefix(key, strings.Split(name, "/")[1])) {
		if err == nil {
			err = r.Store.Delete(ctx, o.Name)
		}
		if err != nil {
			return fmt.Errorf("blob: blobs of %s: %w", key, err)
		}
	}
	return nil
}

// hasOtherObject reports whether a run has events, and another object than the one at uri.
func hasOtherObject(place persister.Place, uri string) bool {
	return place.Day != "" && !place.Deleted && place.Last > place.Expired && place.URI != "" && place.URI != uri
}

// needless reports whether the object of a blob belongs to a run without events.
func needless(place persister.Place) bool {
	return place.Deleted || place.Day != "" && place.Last <= place.Expired
}
