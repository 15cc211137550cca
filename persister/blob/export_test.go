package blob

import (
	"io"

	"agentstream/schema"
)

// NewWriter returns a Writer for an object of a run whose first event follows base. base.Day must be set.
func NewWriter(out io.Writer, key schema.RunKey, base schema.Head) (*Writer, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	return newWriter(out, c, key, base), nil
}
