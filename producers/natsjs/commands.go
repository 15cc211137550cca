package natsjs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/producers/command"
	"agentstream/schema"
)

// Bounds of what waits for the reader of one run's copies. What comes beyond them is lost, and read from
// the log.
const (
	watchMessages = 4096
	watchBytes    = 8 << 20
	watchTimeout  = 5 * time.Second
)

var _ command.Waker = (*Log)(nil)

// openWait is how long a copy waits for the key service. Later copies wait after it.
const openWait = 200 * time.Millisecond

// opener returns what opens copies before it passes them to fn. One that cannot be opened now is passed over, as one is
// that was lost: the reader finds it in the log.
func (l *Log) opener(fn func(schema.Pack)) func(schema.Pack) {
	if l.seal == nil {
		return fn
	}
	return func(p schema.Pack) {
		ctx, cancel := context.WithTimeout(context.Background(), openWait)
		defer cancel()
		if opened, err := l.seal.Open(ctx, p); err == nil {
			fn(opened)
		}
	}
}

// Watch listens to the copies of what is stored in a run, on the log's own connection; see command.Waker. It returns
// when the server knows of it. The client library calls fn from a goroutine for each Watch, or Config.Copies do. A
// reconnect brings it back by itself; what was stored meanwhile is not passed to fn.
func (l *Log) Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	fn = l.opener(fn)
	if l.copies != nil {
		return l.copies.Watch(ctx, key, func(p schema.Pack) {
			if p.Count > 0 {
				fn(p)
			}
		})
	}
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	sub, err := l.nc.Subscribe(schema.LiveFilter(key, l.partitions), func(m *nats.Msg) {
		stored, err := strconv.ParseUint(m.Header.Get(schema.HeaderPosition), 10, 64)
		if err != nil || stored == 0 {
			return // nothing that the stream has sent
		}
		if p, err := schema.ParsePack(m.Subject, m.Header, m.Data, stored); err == nil {
			fn(p) // else not ours; the persister puts such messages aside and logs them
		}
	})
	if err != nil {
		return nil, fmt.Errorf("natsjs: watch %s: %w", key, err)
	}
	stop := func() { _ = sub.Unsubscribe() } // fails only when the connection is gone, and the interest with it
	if err = sub.SetPendingLimits(watchMessages, watchBytes); err == nil {
		err = l.nc.FlushWithContext(ctx)
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("natsjs: watch %s: %w", key, err)
	}
	return stop, nil
}
