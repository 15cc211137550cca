package natskit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/backoff"
)

// Try is how long one answer of the servers is waited for. A request that was under way to a server that has
// gone, or to a stream without a leader, is never answered; the same request, sent again, mostly is.
const Try = time.Second

// patience bounds what is repeated for a caller whose context has no end of its own.
const patience = 15 * time.Second

// Repeat calls ask until it is answered, fails in a way that time does not mend, or ctx ends. ask must be
// safe to repeat. It bounds the wait for an answer: shortly at first, then for a Try. While the
// connection is down nothing is asked, because nats.go would keep the request and send it later.
func Repeat(ctx context.Context, nc *nats.Conn, ask func(ctx context.Context, wait time.Duration) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	for n := 0; ; n++ {
		err := error(nats.ErrConnectionReconnecting)
		if !nc.IsReconnecting() {
			err = ask(ctx, min(Try/4<<min(n, 2), Try))
		}
		if errors.Is(err, nats.ErrConnectionClosed) && !nc.IsClosed() { // what was under way when it was cut
			err = fmt.Errorf("%w: %w", nats.ErrDisconnected, err)
		}
		if err == nil || !Passing(err) {
			return err
		}
		if ctx.Err() == nil && backoff.Sleep(ctx, 10*time.Millisecond<<min(n, 3)+rand.N(20*time.Millisecond)) == nil {
			continue
		}
		if cause := context.Cause(ctx); !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
}

// repeatOn is Repeat for what is asked of one stream. That there is no such stream it finds out by itself, and ends
// with jetstream.ErrStreamNotFound: nobody says so to a direct get, nor where somebody else listens to the subjects.
func repeatOn(ctx context.Context, nc *nats.Conn, stream string,
	ask func(ctx context.Context, wait time.Duration) error) error {
	failed := 0
	return Repeat(ctx, nc, func(ctx context.Context, wait time.Duration) error {
		err := ask(ctx, wait)
		if err == nil || !Passing(err) {
			return err
		}
		failed++
		if failed%lookAgain == lookFirst && nc.IsConnected() && Missing(ctx, nc, stream) {
			return fmt.Errorf("%s: %w", stream, jetstream.ErrStreamNotFound)
		}
		return err
	})
}

// After the second failure it is looked whether there is a stream, and then from time to time.
const lookFirst, lookAgain = 2, 16

// errAgain reports that another try is to be made at once.
var errAgain = errors.New("the stream changes at this moment")

// Error codes of the server, for what passes: too few servers have found each other, no leader is known, or another
// server has become it.
const (
	errNoPeers     jetstream.ErrorCode = 10005
	errNotAssigned jetstream.ErrorCode = 10007
	errNotAvail    jetstream.ErrorCode = 10008
	errNotLeader   jetstream.ErrorCode = 10009
)

// Passing reports whether another try may be answered where this one was not.
func Passing(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode == errNoPeers || api.ErrorCode == errNotAssigned || api.ErrorCode == errNotAvail ||
			api.ErrorCode == errNotLeader
	}
	for _, e := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, jetstream.ErrNoStreamResponse, ErrCut, errAgain,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrDisconnected,
	} {
		if errors.Is(err, e) {
			return !errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrDisconnected)
		}
	}
	return false
}
