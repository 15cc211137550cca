package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// maxFailure bounds what is kept of an answer that is an error, in bytes.
const maxFailure = 64 << 10

// failure returns an answer that is an error, or that there was none, as a message that failed.
func (c *call) failure(ctx context.Context) ([]schema.Event, result, error) {
	body, err := c.errorBody(ctx)
	if err != nil {
		return nil, result{}, err
	}
	f := &failed{c: c}
	cfg := c.providerConfig()
	cfg.MaxFrameBytes = maxFailure
	d := provider.NewDecoder(c.api.provider, cfg, func(out *provider.Writer) provider.Machine {
		f.out = out
		return f
	})
	events, _ := d.Write(body) // it is not closed
	events = append(events, d.Close()...)
	how := result{schema.StateError, f.reason}
	if c.outcome == OutcomeCancelled {
		how.state = schema.StateAborted
	}
	return events, how, nil
}

// errorBody reads the beginning of the error, without the caller's credentials: some servers repeat
// them.
func (c *call) errorBody(ctx context.Context) ([]byte, error) {
	var data []byte
	if body, err := decodeBody(reader{ctx, c.answer}, c.packed); err == nil {
		data, _ = io.ReadAll(io.LimitReader(body, maxFailure)) // what can be read of it
		body.Close()
	}
	c.answer.close("")
	if err := c.answer.waitEnd(ctx); err != nil {
		return nil, err
	}
	if len(data) == maxFailure {
		data = c.filter.Whole(data)
	}
	return c.filter.Bytes(data), nil
}

// failed makes a message of an error.
type failed struct {
	c      *call
	out    *provider.Writer
	reason string
}

// Frame takes the provider's own error.
func (f *failed) Frame(_ string, all provider.Fields) {
	if f.reason != "" {
		f.out.Custom("error", all)
		return
	}
	detail := all.Get("error")
	if detail == nil || provider.IsNull(detail) {
		detail = all.Encode()
	}
	f.emit(detail)
}

func (f *failed) emit(e []byte) {
	f.reason = provider.ErrorText(e)
	if f.c.status != 0 {
		f.reason = fmt.Sprintf("%d %s", f.c.status, f.reason)
	}
	m := f.out.Start("msg_"+f.c.mint, "assistant", nil, nil)
	m.Fault = provider.OrNull(e)
	m.End(nil)
}

// Close makes an error of an answer that has none.
func (f *failed) Close() {
	if f.reason != "" {
		return
	}
	typ, text := "http_status", http.StatusText(f.c.status)
	if f.c.status == 0 {
		typ, text = string(OutcomeUnreachable), errUnreachable.Error()
		if f.c.outcome == OutcomeCancelled {
			typ, text = string(OutcomeCancelled), errCancelled.Error()
		}
	}
	if text == "" {
		text = "no text"
	}
	f.emit(provider.ErrorOf(typ, text))
}
