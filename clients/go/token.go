package agentstream

import (
	"context"
	"fmt"
)

// tokens holds the credential and gets another one when it was refused. Safe for concurrent use.
type tokens struct {
	source func(context.Context) (string, error) // nil: the token is all there is
	turn   chan struct{}                         // capacity 1: who has the turn may touch what follows
	token  string
	have   bool
}

func newTokens(cfg *Config) *tokens {
	return &tokens{source: cfg.TokenSource, turn: make(chan struct{}, 1), token: cfg.Token, have: cfg.TokenSource == nil}
}

// get returns the token in force, "" for none. Others wait while one asks the source, each only as
// long as its own context lasts.
func (t *tokens) get(ctx context.Context) (string, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	if t.have {
		return t.token, nil
	}
	token, err := t.source(ctx)
	if err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	if err := validToken(token); err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	t.token, t.have = token, true
	return token, nil
}

// canReplace reports whether another token can be had in place of one that the server has refused. When several
// requests were refused with one token, the first one's word is enough.
func (t *tokens) canReplace(ctx context.Context, token string) bool {
	if t.source == nil {
		return false
	}
	select { // whoever has the turn is asking the source: the token has changed by then
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return true // whatever comes next finds that the context has ended
	}
	defer func() { <-t.turn }()
	if t.token == token {
		t.have = false
	}
	return true
}
