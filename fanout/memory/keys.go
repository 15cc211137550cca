package memory

import (
	"context"
	"sync"

	"agentstream/producers"
)

// Keys remembers idempotency keys. The zero value is ready; it is safe for concurrent use.
type Keys struct {
	mu sync.Mutex
	m  map[string]producers.KeyRecord
}

// Claim stores r under id unless there is a record, and returns the one that counts.
func (k *Keys) Claim(_ context.Context, id string, r producers.KeyRecord) (producers.KeyRecord, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if have, ok := k.m[id]; ok {
		return have, nil
	}
	k.set(id, r)
	return r, nil
}

// Finish replaces a record.
func (k *Keys) Finish(_ context.Context, id string, r producers.KeyRecord) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(id, r)
	return nil
}

func (k *Keys) set(id string, r producers.KeyRecord) {
	if k.m == nil {
		k.m = make(map[string]producers.KeyRecord)
	}
	k.m[id] = r
}

// Forget forgets all keys: they are not kept for ever.
func (k *Keys) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.m)
}
