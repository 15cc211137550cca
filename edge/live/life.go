package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/schema"
)

// Life is how long a stream lasts: until its client leaves, or it is ended. Until the connection is taken
// over, the end of its request is its own.
type Life struct {
	Caller auth.Caller
	Ctx    context.Context
	Cancel context.CancelCauseFunc
	apart  func() bool          // the request's end is no longer the stream's
	parked atomic.Pointer[view] // where the stream is parked: nobody waits for ctx there
	upon   atomic.Pointer[uponEnd]
	expiry atomic.Pointer[time.Timer]              // ends it with its credential
	ss     *Session                                // that is parked
	conn   interface{ Cut() }                      // taken over from the HTTP server; nil: it is the server's
	first  atomic.Pointer[context.CancelCauseFunc] // ends what opens the stream; nil: it is open
}

// Alone begins a life that ends with End and with nothing else.
func Alone(caller auth.Caller) *Life {
	l := &Life{Caller: caller}
	l.Ctx, l.Cancel = context.WithCancelCause(context.Background())
	return l
}

// NewLife begins a life with a request.
func NewLife(request context.Context, caller auth.Caller) *Life {
	l := Alone(caller)
	l.apart = context.AfterFunc(request, func() { l.Stop(context.Cause(request)) })
	return l
}

// Stop ends the stream, wherever it is. It may be called at any time and from any goroutine; the first reason
// counts.
func (l *Life) Stop(err error) {
	l.Cancel(err)
	if cancel := l.first.Load(); cancel != nil {
		(*cancel)(context.Cause(l.Ctx))
	}
	if v := l.parked.Load(); v != nil {
		go v.unpark(l.ss)
	}
	if u := l.upon.Swap(nil); u != nil {
		go u.run()
	}
	if t := l.expiry.Load(); t != nil {
		t.Stop()
	}
}

// open calls do with a context that ends with the stream and is not below Ctx: one that has had time-outs below it
// holds three times its memory, and Ctx is there as long as the stream.
func (l *Life) open(do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	l.first.Store(&cancel)
	defer l.first.Store(nil)
	if l.Ctx.Err() != nil {
		cancel(context.Cause(l.Ctx))
	}
	return do(ctx)
}

// uponEnd is what is done at the end of a life.
type uponEnd struct {
	do  func()
	ran sync.WaitGroup
}

func (u *uponEnd) run() {
	defer u.ran.Done()
	u.do()
}

// Upon has do called when End is, unless stop was called before. stop waits while do is under way, so that it may use
// what lasts as long as its caller. A life has one.
func (l *Life) Upon(do func()) (stop func()) {
	u := &uponEnd{do: do}
	u.ran.Add(1)
	l.upon.Store(u)
	if l.Ctx.Err() != nil && l.upon.CompareAndSwap(u, nil) {
		go u.run()
	}
	return func() {
		if !l.upon.CompareAndSwap(u, nil) {
			u.ran.Wait()
		}
	}
}

// Leave lets the stream outlive the request.
func (l *Life) Leave() {
	l.apart()
	l.apart = nil
}

// Expire ends the stream with its credential.
func (l *Life) Expire() {
	if at := l.Caller.Expires; !at.IsZero() {
		t := time.AfterFunc(time.Until(at), func() { l.Stop(auth.ErrExpired) })
		l.expiry.Store(t)
		if l.Ctx.Err() != nil {
			t.Stop()
		}
	}
}

// key names a run that the stream's caller may see.
func (l *Life) key(run string) (schema.RunKey, error) {
	key := schema.RunKey{Tenant: l.Caller.Tenant, Run: run}
	if err := key.Validate(); err != nil {
		return key, err
	}
	if only := l.Caller.Run; only != "" && only != key.Run {
		return key, ends.OtherRun(only)
	}
	return key, nil
}

// idleClock returns a context that ends when a keep-alive may be due. One timer serves many waits: it
// is set anew when it has fired, not for every event.
type idleClock struct {
	every time.Duration
	now   *idleWait
}

func (k *idleClock) wait(ctx context.Context, idle time.Time) context.Context {
	if k.now == nil || k.now.Err() != nil {
		k.stop()
		k.now = &idleWait{Context: ctx, at: idle.Add(k.every)}
	}
	return k.now
}

func (k *idleClock) stop() {
	if k.now != nil && k.now.cancel != nil {
		k.now.cancel()
	}
}

// idleWait is a context that ends at a time. Its timer, and what its parent must know of it, begin when somebody waits
// for the end: a stream that is parked never has. One goroutine uses it.
type idleWait struct {
	context.Context // the parent, until Done was called
	at              time.Time
	cancel          context.CancelFunc
}

// Done begins the timer.
func (w *idleWait) Done() <-chan struct{} {
	if w.cancel == nil {
		w.Context, w.cancel = context.WithDeadline(w.Context, w.at)
	}
	return w.Context.Done()
}

// EndCause replaces an error by what ended the stream's context, when that is what it comes from.
func EndCause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, dialect.ErrSlowClient) {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause // we ended it
	}
	return fmt.Errorf("%w: %w", dialect.ErrClientGone, err)
}
