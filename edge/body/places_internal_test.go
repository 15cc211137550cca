package body

import (
	"bytes"
	"compress/gzip"
	"context"
	"runtime"
	"testing"
	"time"
)

// TestPlacesAreShared: bodies of one tenant that wait to be inflated, or put together, do not go before the first one of
// another tenant.
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
			waiting: func() int { _, n := bodies.inflate.places.Held("acme"); return n },
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
			waiting: func() int { _, n := bodies.pieces.places.Held("acme"); return n },
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
			done := make(chan string, many+1)
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
			within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			globex := make(chan error, 1)
			go func() { globex <- way.work(within, "globex") }()
			time.Sleep(20 * time.Millisecond)
			release[0]() // one place becomes free, and the other stays acme's
			if err := <-globex; err != nil {
				t.Errorf("the other tenant: %v", err)
			}
			release[1]()
			for range many {
				<-done
			}
		})
	}
}
