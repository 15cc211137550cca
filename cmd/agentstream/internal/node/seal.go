package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/schema"
	"agentstream/schema/seal"
)

// OpenArchive returns an archive whose packs are opened for who reads them; the archive itself where nothing is
// encrypted.
func OpenArchive(keys *seal.Keys, a Archive) Archive {
	if keys == nil || a == nil {
		return a
	}
	return openedArchive{a, keys}
}

type openedArchive struct {
	Archive
	keys *seal.Keys
}

// Packs implements Archive.
func (o openedArchive) Packs(ctx context.Context, key schema.RunKey, after,
	through schema.Seq) iter.Seq2[schema.Pack, error] {
	return o.keys.OpenAll(ctx, o.Archive.Packs(ctx, key, after, through))
}

// sealedBlobs encrypts what is put, and opens what is got.
type sealedBlobs struct {
	edge.Blobs
	keys *seal.Keys
}

// Put implements edge.Blobs.
func (b sealedBlobs) Put(ctx context.Context, key schema.RunKey, mediaType string,
	pieces iter.Seq2[[]byte, error]) (schema.Blob, bool, error) {
	mediaType, pieces, err := b.keys.SealBlob(ctx, key, mediaType, pieces)
	if err != nil {
		return schema.Blob{}, false, err
	}
	blob, stored, err := b.Blobs.Put(ctx, key, mediaType, pieces)
	if err != nil {
		return blob, stored, err
	}
	blob, _, err = b.keys.OpenBlob(ctx, key, blob, nil)
	return blob, stored, err
}

// Get implements edge.Blobs.
func (b sealedBlobs) Get(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error],
	error) {
	blob, pieces, err := b.Blobs.Get(ctx, key, ref)
	if err != nil {
		return blob, pieces, err
	}
	return b.keys.OpenBlob(ctx, key, blob, pieces)
}

// keyWait is how long the credentials of open streams wait for the key service.
const keyWait = 5 * time.Second

// lock refuses callers of tenants whose key is gone, and ends their streams: what a node remembers of runs is not
// encrypted.
func (g *Gate) lock(keys *seal.Keys) {
	if keys == nil {
		return
	}
	authenticate, still := g.Authenticate, g.Still
	g.Authenticate = func(r *http.Request) (auth.Caller, error) {
		c, err := authenticate(r)
		if err == nil {
			err = keys.Check(r.Context(), c.Tenant)
		}
		return c, err
	}
	g.Still = func(c auth.Caller) error {
		ctx, cancel := context.WithTimeout(context.Background(), keyWait)
		defer cancel()
		if err := keys.Check(ctx, c.Tenant); errors.Is(err, schema.ErrKeyGone) {
			return err
		}
		return still(c)
	}
}

// hubOpen returns what opens packs for readers of the hub; nil where nothing is encrypted.
func hubOpen(keys *seal.Keys) func(context.Context, schema.Pack) (schema.Pack, error) {
	if keys == nil {
		return nil
	}
	return keys.Open
}

// openRecords opens what a tap of a tenant is given.
func openRecords(ctx context.Context, keys *seal.Keys, tenant string, records []schema.TapRecord) error {
	if keys == nil {
		return nil
	}
	for i := range records {
		line, err := keys.OpenLine(ctx, tenant, records[i].Line)
		if err != nil {
			return fmt.Errorf("tap of tenant %s: %w", tenant, err)
		}
		records[i].Line = line
	}
	return nil
}
