package edge

import (
	"context"

	"agentstream/schema"
)

// FOLD: delete this file when foldAt lands.
type foldedAt struct {
	ID, TS string
	Seq    schema.Seq
}

func (s *Server) foldAt(context.Context, schema.RunKey, schema.Seq) ([]byte, foldedAt, error) {
	return nil, foldedAt{}, errNoRoute
}
