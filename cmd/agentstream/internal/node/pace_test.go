package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// sinkLog is a log that takes everything at once.
type sinkLog struct {
	producers.Log
	bytes atomic.Int64
}

func (s *sinkLog) Append(_ context.Context, p *schema.Pack, _ uint64) (uint64, error) {
	s.bytes.Add(int64(len(p.Body)))
	return 1, nil
}

// However much is written, the log in this process gets no more within its time than it may hold, and goes on getting
// nearly as much; a log that was quiet is not slowed down.
func TestPacedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100 << 20
		to := new(sinkLog)
		waited := atomic.Int64{}
		p := newPaced(to, most, func(d time.Duration) { waited.Add(int64(d)) })
		pack := &schema.Pack{Body: make([]byte, 64<<10)}
		for range 100 { // light
			if _, err := p.Append(t.Context(), pack, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if waited.Load() != 0 {
			t.Errorf("%v waited for little", time.Duration(waited.Load()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if _, err := p.Append(ctx, pack, 0); err != nil {
						time.Sleep(10 * time.Millisecond) // as writers do
					}
				}
			})
		}
		var taken []int64
		for range 58 {
			taken = append(taken, to.bytes.Load())
			time.Sleep(time.Second)
		}
		cancel()
		wg.Wait()
		if first := taken[1] - taken[0]; first < most/3 {
			t.Errorf("a quiet log takes %d MiB in a second", first>>20)
		}
		for i := 10; i < len(taken); i++ {
			if in := taken[i] - taken[i-10]; in > most*11/10 {
				t.Errorf("%d MiB within ten seconds at second %d", in>>20, i)
			}
		}
		if all := taken[57] - taken[17]; all < 4*most*7/10 {
			t.Errorf("only %d MiB in forty seconds", all>>20)
		}
	})
}

// Who would wait for longer than it may is refused in time, and nothing is stored.
func TestPacedLogRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := new(sinkLog)
		p := newPaced(to, 10<<20, func(time.Duration) {})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began, refused, taken := time.Now(), 0, 0
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 1000 {
			wg.Go(func() {
				_, err := p.Append(ctx, &schema.Pack{Body: make([]byte, 256<<10)}, 0)
				mu.Lock()
				defer mu.Unlock()
				if taken++; err == nil {
					return
				}
				taken, refused = taken-1, refused+1
				if !errors.Is(err, producers.ErrUnavailable) || errors.Is(err, producers.ErrUnanswered) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if refused == 0 || taken == 0 || time.Since(began) > 2500*time.Millisecond ||
			to.bytes.Load() != int64(taken)*256<<10 {
			t.Errorf("%d refused, %d taken in %v, %d bytes", refused, taken, time.Since(began), to.bytes.Load())
		}
	})
}

// A tenant that writes as fast as it can is slowed down, and no other one: what that writes, commands too, is stored at
// once.
func TestPacedLogSlowsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := new(sinkLog)
		p := newPaced(to, 10<<20, func(time.Duration) {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				pack := &schema.Pack{Key: schema.RunKey{Tenant: "big"}, Body: make([]byte, 1<<20)}
				for ctx.Err() == nil {
					if _, err := p.Append(ctx, pack, 0); err != nil {
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
		time.Sleep(15 * time.Second)
		for range 100 {
			began := time.Now()
			if _, err := p.Append(ctx, &schema.Pack{Key: schema.RunKey{Tenant: "small"}, Body: make([]byte, 512)},
				0); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > time.Millisecond {
				t.Fatalf("another tenant has waited for %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		wg.Wait()
		time.Sleep(time.Minute)
		if _, err := p.Append(t.Context(), &schema.Pack{Key: schema.RunKey{Tenant: "small"}, Body: make([]byte, 512)},
			0); err != nil || len(p.tenants) > 1 {
			t.Errorf("%d tenants are remembered, %v", len(p.tenants), err)
		}
	})
}
