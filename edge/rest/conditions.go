package rest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
)

// appendOptions reads the headers that say how events are to be taken: Idempotency-Key, If-Match, If-None-Match,
// Agentstream-Atomic and Agentstream-Lease.
func appendOptions(h http.Header) (producers.AppendOptions, error) {
	opt, err := protocol.ParseKey("Idempotency-Key", h["Idempotency-Key"])
	if err != nil {
		return opt, err
	}
	switch atomic := h["Agentstream-Atomic"]; {
	case atomic == nil:
	case len(atomic) == 1 && (atomic[0] == "true" || atomic[0] == "false"):
		opt.Whole = atomic[0] == "true"
	default:
		return opt, dialect.BadValue(dialect.ErrBadRequest, "Agentstream-Atomic", strings.Join(atomic, ", "),
			"true or false, once")
	}
	switch lease := h["Agentstream-Lease"]; {
	case lease == nil:
	case len(lease) == 1 && schema.ValidRunID(lease[0]) == nil:
		opt.Owner = lease[0]
	default:
		return opt, dialect.BadValue(dialect.ErrBadRequest, "Agentstream-Lease", strings.Join(lease, ", "),
			"one lease of an answer to GET /v1/agent/work")
	}
	match, none := h["If-Match"], h["If-None-Match"]
	if match == nil && none == nil {
		return opt, nil
	}
	want, err := parseConditions(match, none)
	opt.Plan = func(_ context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error) {
		return given, want.check(head)
	}
	return opt, err
}

// conditions are what a request demands of the run before its events are stored (RFC 9110 §13.1). The entity tag
// of a run is its newest seq.
type conditions struct {
	isNew  bool         // If-None-Match: *
	exists bool         // If-Match: *
	last   []schema.Seq // If-Match: one of these; "0" is a run without events
}

func parseConditions(match, none []string) (c conditions, err error) {
	if match != nil && none != nil {
		return c, dialect.Refuse(dialect.ErrBadRequest, "send If-Match or If-None-Match, not both")
	}
	if none != nil {
		if len(none) != 1 || none[0] != "*" {
			return c, dialect.BadValue(dialect.ErrBadRequest, "If-None-Match", strings.Join(none, ", "), "*, once")
		}
		c.isNew = true
		return c, nil
	}
	for tag := range strings.SplitSeq(strings.Join(match, ","), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" {
			c.exists = true
			continue
		}
		digits, open := strings.CutPrefix(tag, `"`)
		digits, closed := strings.CutSuffix(digits, `"`)
		if !open || !closed || len(digits) > 1 && digits[0] == '0' {
			return c, badMatch(tag)
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || schema.Seq(n) > schema.MaxSeq || len(c.last) == maxTags {
			return c, badMatch(tag)
		}
		c.last = append(c.last, schema.Seq(n))
	}
	if c.exists && len(c.last) > 0 {
		return c, dialect.Refuse(dialect.ErrBadRequest, "If-Match must be * alone, or seqs alone")
	}
	return c, nil
}

func badMatch(tag string) error {
	return dialect.BadValue(dialect.ErrBadRequest, "If-Match", tag,
		`* or at most %d seqs, each in quotation marks as "41"`, maxTags)
}

// maxTags is how many entity tags are read.
const maxTags = 16

// check is producers.AppendOptions.Check. Its error says where the run is.
func (c conditions) check(head schema.Head) error {
	met := c.exists && head.HasEvents() || c.isNew && !head.HasEvents()
	for _, seq := range c.last {
		met = met || head.Last == seq
	}
	if met {
		return nil
	}
	return &ends.PositionError{Last: head.Last,
		Err: fmt.Errorf("%w: the run's newest event is %d", ends.ErrCondition, head.Last)}
}

// tag puts the run's entity tag, as of the last event of an append, into the answer.
func tag(c *protocol.Call, last schema.Seq) {
	var b [20]byte
	c.Tag(string(strconv.AppendInt(b[:0], int64(last), 10)))
}
