package qoder

// tools is what is remembered of tool calls and requests for input.
type tools struct{}

func (t *tools) clone() tools { return *t }
func (t *tools) size() int    { return 0 }

// tool reads tool calls and requests for input.
func (p *Projector) tool() {}
