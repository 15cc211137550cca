package rest

import (
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/shape"
)

// filterOf reads types, child and nested, as streams do.
func filterOf(q protocol.Query) (shape.Filter, error) {
	nested, err := q.Choice("nested", "false", "true", "0", "1")
	if err != nil {
		return shape.Filter{}, err
	}
	f := dialect.Filter{
		Children: dialect.SplitList(q["child"]), Types: dialect.SplitList(q["types"]), Nested: nested == "true" || nested == "1",
	}
	if f, err = f.Normal(); err != nil {
		return shape.Filter{}, err
	}
	return shape.NewFilter(f.Children, f.Types, f.Nested), nil
}
