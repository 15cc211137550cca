package sessions

import (
	"agentstream/edge"
	"agentstream/edge/dialect/qoder"
)

// API gives the routes, below all bases of the dialect.
func API(d qoder.Dialect) edge.API { return edge.API{Dialect: d} }
