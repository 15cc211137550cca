package body

import (
	"bytes"
	"compress/gzip"
	"context"
	"runtime"
	"testing"
	"time"

	"agentstream/internal/fair"
)

// waiting returns how many bodies wait for a place.
func waiting(places *fair.Slots) int {
	_, first := places.CountHeld("acme")
	_, other := places.CountHeld("globex")
	return first + other
}

// TestPlacesAreShared: bodies of one tenant that wait to be inflated, or put together, do not go before the first one
// of another tenant.
func TestPlacesAreShared(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	bodies, err := New(Config{MaxBytes: 1 << 20, Memory: 1 << 30, Wait: time.Minute, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(make([]byte, 200<<10)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	plain := make([]byte, 200<<10)
	share := func(tenant string) *Share { return bodies.Share(tenant) }
	for name, way := range map[string]struct {
		acquire func() func()
		waiting func() int
		work    func(ctx context.Context, tenant string) error
	}{
		"inflate": {
			acquire: func() func() {
				slot, err := bodies.inflate.places.Acquire(t.Context(), "acme")
				if err != nil {
					t.Fatal(err)
				}
				return slot.Release
			},
			waiting: func() int { return waiting(bodies.inflate.places) },
			work: func(ctx context.Context, tenant string) error {
				_, err := bodies.inflate.inflate(ctx, share(tenant), "gzip", nil, packed.Bytes())
				return err
			},
		},
		"gather": {
			acquire: func() func() {
				slot, err := bodies.pieces.places.Acquire(t.Context(), "acme")
				if err != nil {
					t.Fatal(err)
				}
				return slot.Release
			},
			waiting: func() int { return waiting(bodies.pieces.places) },
			work: func(ctx context.Context, tenant string) error {
				in := &reading{r: bytes.NewReader(plain), size: -1, tenant: tenant}
				_, err := bodies.pieces.gather(ctx, in, func(int64) error { return nil }, nil)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := []func(){way.acquire(), way.acquire()}
			const many = 20
			done := make(chan string, many+1) // in the order in which they are
			begin := func(tenant string) {
				go func() {
					if err := way.work(t.Context(), tenant); err != nil {
						t.Error(err)
					}
					done <- tenant
				}()
			}
			for range many {
				begin("acme")
			}
			for way.waiting() < many {
				time.Sleep(time.Millisecond)
			}
			begin("globex")
			for way.waiting() < many+1 {
				time.Sleep(time.Millisecond)
			}
			release[0]() // one place becomes free, and the other stays acme's
			before := 0
			for tenant := range done {
				if tenant == "globex" {
					break
				}
				before++
			}
			if before > many/2 { // it is the first; others may be ready before it says so
				t.Errorf("%d of %d bodies of the tenant that came first went before another tenant's", before, many)
			}
			release[1]()
			for range many - before {
				<-done
			}
		})
	}
}
