package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/state"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// describe returns the event by which the headers of a request describe the run that begins with it, none without them.
func (a *API) describe(h http.Header, run string) ([]schema.Event, error) {
	said, err := schema.ParseDescription(h)
	if err != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "%v", err)
	}
	if said.IsZero() {
		return nil, nil
	}
	e, err := said.Event()
	if err == nil && run != "" {
		err = e.Prepare(run)
	}
	return []schema.Event{e}, err
}

// readDescription makes the event of a body that changes what is said of a run.
func readDescription(body []byte) (e schema.Event, err error) {
	fields := map[string]json.RawMessage{}
	if err := decodeObject(body, &fields); err != nil {
		return e, err
	}
	return describeBy(fields)
}

// describeBy returns the session.updated of title, tags and metadata.
func describeBy(fields map[string]json.RawMessage) (e schema.Event, err error) {
	if len(fields) == 0 {
		return e, fmt.Errorf("nothing is said of the run: title, tags or metadata: %w", dialect.ErrBadRequest)
	}
	for name := range fields {
		if name != "title" && name != "tags" && name != "metadata" {
			return e, &ends.FieldError{Field: "/" + ends.Clip(name),
				Err: fmt.Errorf("only title, tags and metadata can be set: %w", dialect.ErrBadRequest)}
		}
	}
	e = schema.Event{Type: schema.TypeSessionUpdated}
	if e.Payload, err = encodeJSON(fields); err != nil {
		return e, err
	}
	field, err := schema.CheckDescription(e.Payload)
	return e, refuseField(field, err)
}

// refuseField returns an error with the field of the body that it is about, nil for none.
func refuseField(field string, err error) error {
	switch {
	case err == nil:
		return nil
	case field == "":
		return dialect.Refuse(dialect.ErrBadRequest, "%v", err)
	}
	return &ends.FieldError{Field: field, Err: dialect.Refuse(dialect.ErrBadRequest, "%v", err)}
}

// admitDescription returns what holds a change to the bounds of what is kept of a run, which a merge would silently not
// pass. Of a run that cannot be folded nothing is known.
func (a *API) admitDescription(*auth.Caller) admission {
	return func(ctx context.Context, key schema.RunKey, head schema.Head, events []schema.Event) error {
		err := a.cfg.State.Fold(fair.Command(ctx), key, head.Last, func(f *state.Folded) error {
			field, err := schema.CheckChange(f.Fold.Session, events[0].Payload)
			return refuseField(field, err)
		})
		if errors.Is(err, schema.ErrTooLarge) || errors.Is(err, fanout.ErrExpired) {
			return nil
		}
		return err
	}
}
