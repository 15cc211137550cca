package proxy

import (
	"context"
	"io"
	"slices"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// stream records an answer as it comes.
func (c *call) stream(ctx context.Context) (result, error) {
	d := c.api.decoder(c.providerConfig())
	if err := c.decode(ctx, d); err != nil {
		return result{}, err
	}
	lost, why, _, _ := c.answer.fate()
	var last []schema.Event
	if why != "" {
		last = append(last, c.here(lossEvent(loss{why, lost})))
	}
	ends := c.measure(d.Close())
	if why != "" {
		excuse(ends)
	}
	if err := c.send(ctx, append(last, ends...)); err != nil {
		return result{}, err
	}
	if why == "" {
		return c.judge(), nil
	}
	c.reportRecordedLoss(why, lost)
	c.answer.close("")
	if err := c.answer.waitEnd(ctx); err != nil {
		return result{}, err
	}
	if all, _, _, _ := c.answer.fate(); all > lost {
		if err := c.send(ctx, []schema.Event{c.here(lossEvent(loss{why, all - lost}))}); err != nil {
			return result{}, err
		}
		c.reportRecordedLoss(why, all-lost)
	}
	c.partial = true
	return c.judge(), nil
}

// excuse takes the error off messages that the record cuts short: their stream went on.
func excuse(ends []schema.Event) {
	for i := range ends {
		e := &ends[i]
		if e.Type != schema.TypeMessageEnd {
			continue
		}
		all, _ := provider.Parse(e.Payload)
		if all.Object("error").Str("type") == "stream_cut" {
			e.Payload = slices.DeleteFunc(all, func(f provider.Field) bool { return f.Name == "error" }).Encode()
		}
	}
}

// measure takes frames that are too long to be read for what they are: a loss of the record, and no fault of the
// answer.
func (c *call) measure(events []schema.Event) []schema.Event {
	for i := range events {
		e := &events[i]
		if !strings.HasSuffix(e.Type, ".bad_frame") {
			continue
		}
		all, _ := provider.Parse(e.Payload)
		if all.Str("problem") != provider.ProblemLong {
			continue
		}
		*e = c.here(lossEvent(loss{reasonLong, c.unread}))
		c.reportRecordedLoss(reasonLong, c.unread)
		c.partial, c.unread = true, 0
	}
	if len(events) > 0 {
		c.unread = 0
	}
	return events
}

// decodeBuffer is how much of an answer is decoded at a time, in bytes.
const decodeBuffer = 16 << 10

// decode feeds d until the body is over or has a hole, or cannot be read further. The error is the log's
// or ctx's.
func (c *call) decode(ctx context.Context, d *provider.Decoder) error {
	body, err := decodeBody(reader{ctx, c.answer}, c.packed)
	if err == nil {
		defer body.Close()
	}
	buf := make([]byte, decodeBuffer)
	for left := c.p.cfg.AnswerBytes; err == nil; {
		var n int
		n, err = body.Read(buf[:min(len(buf), left)])
		events, _ := d.Write(buf[:n]) // it is not closed
		c.unread += int64(n)
		if err := c.send(ctx, c.measure(events)); err != nil {
			return err
		}
		if left -= n; left == 0 {
			c.answer.close(reasonLong)
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if lost, _, over, cut := c.answer.fate(); err != io.EOF && lost == 0 && (!over || cut == nil) {
		c.answer.close(reasonCoding)
	}
	return nil
}

// reportRecordedLoss reports a loss to the operator that the run records as well.
func (c *call) reportRecordedLoss(why string, bytes int64) {
	c.recorded += bytes
	c.p.reportLoss(Loss{Key: c.asked.key, Reason: why, Bytes: bytes, Recorded: true}, nil)
}

// judge returns how a call went. A client may leave when it has the message: that the connection was still open then
// does not matter. Of an answer that is recorded in part, what was not read is taken to be as it should: the run says
// what it lacks, and the call did not fail by that.
func (c *call) judge() result {
	state, reason := c.seen.State()
	switch _, _, _, cut := c.answer.fate(); {
	case state == schema.StateDone:
	case cut == errCancelled:
		return result{schema.StateAborted, cut.Error()}
	case cut != nil:
		return result{schema.StateError, cut.Error()}
	case c.partial && reason == c.seen.Damage():
		return result{state: schema.StateDone}
	}
	return result{state, reason}
}
