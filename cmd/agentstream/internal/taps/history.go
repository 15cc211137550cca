package taps

import (
	"context"
	"iter"
	"slices"
	"strings"

	agentstream "agentstream/clients/go"
	lognats "agentstream/fanout/natsjs"
	"agentstream/schema"
	"agentstream/tap"
)

// wholeRuns are the schemes of sinks that are about runs, not events: they read the beginning of a run again.
const wholeRuns = "otlp+"

// hasWholeRuns reports whether a sink is about runs.
func (f *SinkFlags) hasWholeRuns() bool {
	return slices.ContainsFunc(f.To, func(to string) bool { return strings.HasPrefix(to, wholeRuns) })
}

// runHistory is otlp.History: a run out of the log, and out of the archive where the log no longer has it.
type runHistory struct {
	log     *lognats.Log
	archive tap.Backlog // nil: none
}

// packWalk is what walks packs until the function wants no more.
type packWalk = iter.Seq2[schema.Pack, error]

// Packs implements otlp.History.
func (h *runHistory) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) packWalk {
	return func(yield func(schema.Pack, error) bool) {
		for pack, err := range h.log.Packs(ctx, key, after, through) {
			if err == nil && pack.First > after+1 && !pass(h.older(ctx, key, after, pack.First-1), yield) {
				return
			}
			if !yield(pack, err) || err != nil {
				return
			}
			after = pack.Last()
		}
		if after < through {
			pass(h.older(ctx, key, after, through), yield)
		}
	}
}

// older walks what the log no longer has.
func (h *runHistory) older(ctx context.Context, key schema.RunKey, after, through schema.Seq) packWalk {
	if h.archive == nil {
		return func(func(schema.Pack, error) bool) {}
	}
	return h.archive.Packs(ctx, key, after, through)
}

// pass yields what a walk has, and reports whether more is wanted.
func pass(walk packWalk, yield func(schema.Pack, error) bool) bool {
	for pack, err := range walk {
		if !yield(pack, err) || err != nil {
			return false
		}
	}
	return true
}

// serverHistory is otlp.History of a server's runs.
type serverHistory struct{ client *agentstream.Client }

// Packs implements otlp.History. Each event is a pack.
func (h serverHistory) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) packWalk {
	return func(yield func(schema.Pack, error) bool) {
		for e, err := range h.client.Run(key.Run).Export(ctx, after, through) {
			line := append(e.AppendLine(nil), '\n')
			pack := schema.Pack{Key: key, Child: e.ChildID, First: e.Seq, Count: 1, Body: line}
			if !yield(pack, err) || err != nil {
				return
			}
		}
	}
}
