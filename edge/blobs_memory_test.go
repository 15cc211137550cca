package edge_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"sync"

	"agentstream/schema"
)

// memoryBlobs keeps blobs in memory, counts what is asked of it where somebody wants to know, and fails as it is told.
type memoryBlobs struct {
	work *work // nil: nobody counts

	mu  sync.Mutex
	m   map[string]memoryBlob // by run and ref
	err error                 // of Put
}

type memoryBlob struct {
	key  schema.RunKey
	blob schema.Blob
	data []byte
}

func (b *memoryBlobs) count(what string) {
	if b.work != nil {
		b.work.add(what)
	}
}

func (b *memoryBlobs) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *memoryBlobs) Put(_ context.Context, key schema.RunKey, mediaType string,
	pieces iter.Seq2[[]byte, error]) (schema.Blob, bool, error) {
	b.count("put a blob")
	var data []byte
	for piece, err := range pieces {
		if err != nil {
			return schema.Blob{}, false, err
		}
		data = append(data, piece...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return schema.Blob{}, false, b.err
	}
	blob := schema.Blob{Ref: schema.BlobRef(sha256.Sum256(data)), Type: mediaType, Size: int64(len(data))}
	if have, ok := b.m[key.String()+blob.Ref]; ok {
		return have.blob, false, nil
	}
	if b.m == nil {
		b.m = make(map[string]memoryBlob)
	}
	b.m[key.String()+blob.Ref] = memoryBlob{key, blob, data}
	return blob, true, nil
}

func (b *memoryBlobs) Get(_ context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error],
	error) {
	b.count("get a blob")
	b.mu.Lock()
	defer b.mu.Unlock()
	have, ok := b.m[key.String()+ref]
	if !ok {
		return schema.Blob{}, nil, fmt.Errorf("%s: %w", ref, schema.ErrNoBlob)
	}
	return have.blob, schema.BlobPieces(have.data), nil
}

func (b *memoryBlobs) List(_ context.Context, key schema.RunKey) (list []schema.Blob, err error) {
	b.count("list blobs")
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, have := range b.m {
		if have.key == key {
			list = append(list, have.blob)
		}
	}
	return list, nil
}

func (b *memoryBlobs) Drop(_ context.Context, key schema.RunKey, ref string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.m, key.String()+ref)
	return nil
}
