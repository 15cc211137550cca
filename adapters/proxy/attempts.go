package proxy

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// attempt is a call that failed in a way that clients repeat by themselves. It waits for its repeat: that takes its
// place, and the two are one model call of the log.
type attempt struct {
	request sum // what was asked; zero: it is not known
	claimed chan struct{}
}

// A client's library waits for half a second before the first repeat, twice as long before each further one, and 8 s at
// most; or for as long as the answer says, where that is no more than a minute.
const (
	firstRepeat = 500 * time.Millisecond
	lastRepeat  = 8 * time.Second
	maxRepeat   = time.Minute
)

// TypeAttempt is the event of an attempt that may be repeated, when it fails. The failure itself is recorded when no
// repeat has come.
const TypeAttempt = "custom.proxy.attempt"

// patience returns how long a failed call waits for its repeat; 0: clients do not repeat it.
func (c *call) patience() time.Duration {
	least := c.p.cfg.RetryHold
	if least == 0 || c.thread == nil && !c.asked.named {
		return 0
	}
	switch c.answerHeader.Get("X-Should-Retry") {
	case "false":
		return 0
	case "true":
	default:
		if !isRepeated(c.status) && !c.isCut() {
			return 0
		}
	}
	wait := min(firstRepeat<<min(max(c.retries, 0), 8), lastRepeat)
	if after := retryAfter(c.answerHeader, time.Now()); after > 0 && after <= maxRepeat {
		wait = after
	}
	return least + wait
}

// isCut reports whether the answer broke off, or the client left before an answer was whole that is no stream:
// libraries read it whole, and repeat the call when that fails or takes too long.
func (c *call) isCut() bool {
	_, _, _, cut := c.answer.fate()
	return cut == errBroken || cut == errCancelled && !c.streamed
}

// isRepeated reports whether clients repeat a call with this status; 0 is no answer.
func isRepeated(status int) bool {
	switch status {
	case 0, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// retryAfter returns how long an answer tells its client to wait; 0: it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return time.Duration(ms * float64(time.Millisecond))
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return at.Sub(now)
	}
	return 0
}

// hold lets the lane go on, and waits for the repeat of a call that failed. claimed: it has come, and there is
// nothing more to record here. Otherwise the lane is the call's again.
func (c *call) hold(ctx context.Context, how result) (claimed bool, err error) {
	wait := c.patience()
	if wait == 0 {
		return false, nil
	}
	note := provider.Fields{
		{Name: "call_id", Value: provider.Quote(c.id())}, {Name: "attempt", Value: provider.Number(c.attempts + 1)},
		{Name: "status", Value: provider.Number(c.status)},
		{Name: "error", Value: provider.ErrorOf(string(how.state), how.reason)},
		{Name: "wait_ms", Value: provider.Number(int(wait.Milliseconds()))},
	}
	if err := c.store(ctx, []schema.Event{c.here(schema.Event{Type: TypeAttempt, Payload: note.Encode()})}); err != nil {
		return false, err
	}
	a := &attempt{request: c.sent, claimed: make(chan struct{})}
	c.run.mu.Lock()
	c.waiting = a
	c.lane.failed = append(c.lane.failed, c)
	c.run.mu.Unlock()
	c.p.talks.wait(c.thread, true)
	defer c.p.talks.wait(c.thread, false)
	close(c.done)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-a.claimed:
	case <-timer.C:
	case <-c.p.quit:
	case <-ctx.Done():
	}
	c.hear(ctx, a)
	if c.withdraw() {
		c.done = nil // it is closed
		return true, nil
	}
	if err := c.queue(ctx); err != nil {
		return false, err
	}
	return c.elsewhere(ctx)
}

// hear waits for the calls of the lane that have come already: the repeat may be one of them, whose request is not whole
// or that is not recorded yet.
func (c *call) hear(ctx context.Context, a *attempt) {
	c.p.mu.Lock()
	newest := c.lane.tail
	c.p.mu.Unlock()
	select {
	case <-newest:
	case <-a.claimed:
	case <-ctx.Done():
	}
}

// withdraw lets no call claim this one any more, and reports whether one has.
func (c *call) withdraw() (claimed bool) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	at := slices.Index(c.lane.failed, c)
	if at < 0 {
		return true
	}
	c.lane.failed = slices.Delete(c.lane.failed, at, at+1)
	return false
}

// elsewhere finds out whether the repeat has come to another proxy. That one ends the run then.
func (c *call) elsewhere(ctx context.Context) (bool, error) {
	r := c.run
	if c.sent == (sum{}) {
		return false, nil
	}
	if err := r.lock(ctx); err != nil {
		return false, err
	}
	defer r.unlock()
	at, err := c.sink.Standing(ctx)
	if err != nil {
		return false, trail("look at", r.key, err)
	}
	if err := r.recall(ctx, c, at.Last); err != nil {
		return false, err
	}
	r.mu.Lock()
	newest := c.lane.asked[c.sent]
	r.mu.Unlock()
	return newest != nil && newest.id != c.id(), nil
}

// queue gets in line for the lane once more.
func (c *call) queue(ctx context.Context) error {
	c.p.mu.Lock()
	c.before, c.done = c.lane.tail, make(chan struct{})
	c.lane.tail = c.done
	c.p.mu.Unlock()
	return c.turn(ctx)
}

// claim takes the place of the attempt that this call repeats, if one waits: the newest with the same request, and
// where requests are not read, the newest when the client says that it repeats one. It is called with the run's mu
// held.
func (c *call) claim(request sum) {
	if c.first != nil {
		return
	}
	for i := len(c.lane.failed) - 1; i >= 0; i-- {
		f := c.lane.failed[i]
		if f.sent != request || request == (sum{}) && c.retries == 0 {
			continue
		}
		c.lane.failed = slices.Delete(c.lane.failed, i, i+1)
		c.first, c.attempts, c.chapter = f, f.attempts+1, f.chapter
		c.name, c.began = f.name, f.began
		close(f.waiting.claimed)
		return
	}
}
