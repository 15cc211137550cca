package agentstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agentstream/schema"
)

// TapOptions select events of all runs. The zero value is all that is kept, and what comes.
type TapOptions struct {
	Types  []string // by name, or with * at the end; empty: all
	Cursor string   // go on after the record that had it
	// Name is that under which the server keeps the place: without a Cursor the tap goes on after what was
	// acknowledged.
	Name string
	From time.Time // without a place: events of this time or later
	New  bool      // without a place: what is stored from now on
}

// TapRecord is an event, a gap or a place alone, and the cursor after it.
type TapRecord struct {
	Cursor string
	Line   []byte          // the event as the server has sent it; nil: there is none. The receiver may keep it
	Gap    *schema.TapLoss // events that are kept nowhere; nil: there is none
}

// Event decodes the record's event. The error means that it has none, or that it is newer than this library.
func (r *TapRecord) Event() (schema.Event, error) { return schema.DecodeLine(r.Line) }

// Tap returns the events of all runs of the tenant, those of a run in order, over as many connections as that takes:
// it ends with ctx. An error is the last thing that it yields. With a Name, Acknowledge what was dealt with.
func (c *Client) Tap(ctx context.Context, o TapOptions) iter.Seq2[TapRecord, error] {
	return func(yield func(TapRecord, error) bool) {
		t := &tap{asked: o, retry: newRetry(c)}
		for {
			err := t.read(ctx, yield)
			if err == nil {
				return
			}
			if err = t.retry.after(ctx, err); err != nil {
				yield(TapRecord{}, err)
				return
			}
		}
	}
}

// Acknowledge reports to the server that everything up to a cursor of a tap has been dealt with. The place that the
// server keeps never moves back.
func (c *Client) Acknowledge(ctx context.Context, name, cursor string) error {
	body, err := json.Marshal(map[string]string{"cursor": cursor})
	if err != nil {
		return err
	}
	r := request{method: http.MethodPost, target: c.url("v1", "agent", "taps", name), contentType: typeJSON, body: body}
	_, err = c.call(ctx, r, nil)
	return err
}

// Identity is what a server knows of a credential.
type Identity struct {
	Tenant string   `json:"tenant"`
	Scopes []string `json:"scopes"`
	Run    string   `json:"run"` // the one run that it is for; "": all of the tenant
}

// WhoAmI returns whose the client's credential is.
func (c *Client) WhoAmI(ctx context.Context) (who Identity, err error) {
	_, err = c.call(ctx, request{method: http.MethodGet, target: c.url("v1", "agent", "whoami")}, &who)
	return who, err
}

// tap is a tap under way.
type tap struct {
	asked TapOptions
	retry retry
}

// query returns the parameters of a connection.
func (t *tap) query() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("types", strings.Join(t.asked.Types, ","))
	set("tap", t.asked.Name)
	set("cursor", t.asked.Cursor)
	switch {
	case t.asked.New:
		set("from", "new")
	case !t.asked.From.IsZero():
		set("from", t.asked.From.Format(time.RFC3339Nano))
	}
	return q
}

// read reads one answer. It returns nil when the caller wants no more.
func (t *tap) read(ctx context.Context, yield func(TapRecord, error) bool) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	c := t.retry.c
	r := request{method: http.MethodGet, target: withQuery(c.url("v1", "agent", "events", "stream"), t.query()),
		accept: typeNDJSON}
	req, token, err := c.build(ctx, &r)
	if err != nil {
		return err
	}
	t.retry.token = token
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return readError(resp)
	}
	t.retry.fresh = false
	watchdog := time.AfterFunc(time.Hour, func() { cut(errIdle) })
	defer watchdog.Stop()
	lines := bufio.NewScanner(&patientReader{resp.Body, watchdog, c.cfg.IdleTimeout})
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue // a sign of life
		}
		if more, err := t.line(lines.Bytes(), yield); err != nil || !more {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return &connError{err}
	}
	return &connError{io.ErrUnexpectedEOF}
}

// line hands on a line.
func (t *tap) line(line []byte, yield func(TapRecord, error) bool) (more bool, err error) {
	var in struct {
		Cursor string          `json:"cursor"`
		Event  json.RawMessage `json:"event"`
		Gap    *schema.TapLoss `json:"gap"`
	}
	if err := json.Unmarshal(line, &in); err != nil || in.Cursor == "" {
		return false, fmt.Errorf("tap: %.80q is not a record: is this an agentstream server?", line)
	}
	t.retry.backoff.reset()
	// The next connection has the cursor and no name: with one it would acknowledge what the caller has perhaps not
	// dealt with.
	t.asked.Cursor, t.asked.Name = in.Cursor, ""
	return yield(TapRecord{Cursor: in.Cursor, Line: in.Event, Gap: in.Gap}, nil), nil
}
