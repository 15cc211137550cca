package edge

import (
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
)

// RouteRow is a route: what it answers, and what it takes to ask.
type RouteRow struct {
	Pattern   string
	Method    string
	Path      string
	Needs     auth.Scope
	Transport dialect.Transport
}

// Table returns the routes of a server. Tests hold contracts, scopes and tenants to it, so that a route that is added
// later is tested without anybody thinking of it.
func (s *Server) Table() []RouteRow {
	var rows []RouteRow
	for _, rt := range s.routes {
		rows = append(rows, rt.row())
		if rt.asked != nil {
			rows = append(rows, rt.asked.row())
		}
	}
	return rows
}

func (rt *route) row() RouteRow {
	return RouteRow{Pattern: rt.pattern, Method: rt.method, Path: rt.pattern[len(rt.method)+1:], Needs: rt.needs,
		Transport: rt.transport()}
}
