package producers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBoundedIsAContextWithADeadline(t *testing.T) {
	gone := errors.New("client has left")
	cases := map[string]struct {
		parent  time.Duration // deadline of the parent; 0 none
		cancel  time.Duration // after which the parent is cancelled; 0 never
		release time.Duration // after which release is called; 0 never
		ends    time.Duration
		err     error
		cause   error
	}{
		"its own time":       {0, 0, 0, time.Minute, context.DeadlineExceeded, context.DeadlineExceeded},
		"the parent's time":  {time.Second, 0, 0, time.Second, context.DeadlineExceeded, context.DeadlineExceeded},
		"a later parent":     {time.Hour, 0, 0, time.Minute, context.DeadlineExceeded, context.DeadlineExceeded},
		"a cancelled parent": {0, time.Second, 0, time.Second, context.Canceled, gone},
		"released":           {0, 0, time.Second, time.Second, context.Canceled, context.Canceled},
	}
	for name, c := range cases {
		for _, waits := range []string{"Done at once", "Err alone", "attempt"} {
			if waits == "attempt" && c.release > 0 {
				continue // who releases has no attempt under way
			}
			t.Run(name+", "+waits, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					parent, leave := context.WithCancelCause(context.Background())
					defer leave(nil)
					if c.parent > 0 {
						var cancel context.CancelFunc
						parent, cancel = context.WithTimeout(parent, c.parent)
						defer cancel()
					}
					b := &bounded{Context: parent, at: begun.Add(time.Minute)}
					defer b.release()
					if c.cancel > 0 {
						time.AfterFunc(c.cancel, func() { leave(gone) })
					}
					if c.release > 0 {
						time.AfterFunc(c.release, b.release)
					}
					var ctx context.Context = b
					if waits == "attempt" {
						one := attempt(b, time.Hour)
						defer one.release()
						ctx = one
					}
					if waits == "Err alone" {
						for b.Err() == nil {
							time.Sleep(time.Millisecond)
						}
					}
					<-ctx.Done()
					if took := time.Since(begun); took < c.ends || took > c.ends+2*time.Millisecond ||
						!errors.Is(ctx.Err(), c.err) || !errors.Is(context.Cause(ctx), c.cause) {
						t.Errorf("ended after %v with %v because of %v, want %v, %v, %v", took, ctx.Err(),
							context.Cause(ctx), c.ends, c.err, c.cause)
					}
				})
			})
		}
	}
}

func TestAttemptHasItsOwnBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bounded{Context: context.Background(), at: time.Now().Add(time.Minute)}
		defer b.release()
		begun := time.Now()
		ctx := attempt(b, time.Second)
		defer ctx.release()
		<-ctx.Done()
		if took := time.Since(begun); took != time.Second || b.Err() != nil || b.timed != nil {
			t.Errorf("ended after %v; the whole has %v", took, b.Err())
		}
	})
}
