package sessions

import (
	"agentstream/edge"
	"agentstream/edge/dialect/qoder"
)

// API gives the routes, below all bases of the dialect.
func API(d qoder.Dialect) edge.API { return edge.API{Dialect: d, Below: below()} }

// below gives the beginnings of paths that are the API's, whatever follows.
func below() (paths []string) {
	for _, base := range qoder.Bases() {
		paths = append(paths, base+"/sessions")
	}
	return paths
}
