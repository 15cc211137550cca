package edge

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// tracks keeps copies of stateful projectors along runs.
type tracks struct{}

func (t *tracks) at(ctx context.Context, key schema.RunKey, d dialect.Dialect, through schema.Seq, req dialect.Request) (dialect.Stateful, error) {
	panic("not yet")
}

// found is where a frame is.
type found struct {
	seq   schema.Seq
	index int
}

func (s *Server) find(ctx context.Context, key schema.RunKey, d dialect.Dialect, c dialect.Cursor, req dialect.Request) (found, error) {
	panic("not yet")
}

// newHex gives 32 hex digits that nobody has used.
func newHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
