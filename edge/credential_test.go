package edge_test

import (
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// TestKeysOfAProtocol: a protocol's clients send their credential, and the tickets of its streams, where that protocol
// has them. No other route looks there.
func TestKeysOfAProtocol(t *testing.T) {
	g := newGuarded(t, func(c *edge.Config) {
		c.Origins = []string{page}
		odd := edgetest.OddDialect{Pattern: "GET /odd/{run}", OnOpen: byPath, Mode: dialect.ModeA,
			OnProject: func(out *dialect.Frames, _ schema.Record) error {
				out.Add(dialect.Frame{Data: []byte("1"), Last: true})
				return nil
			}}
		c.Protocols = append(c.Protocols, protocol.Protocol{Key: "X-Api-Key", Ticket: protocol.Ticket{Param: "attach"},
			Dialect: odd, Streams: odd.Streams()})
	})
	bearer := "Bearer " + staticToken
	for _, tt := range []struct {
		what, path string
		headers    []string
		status     int
	}{
		{"its header", "/odd/run", []string{"X-Api-Key", staticToken}, 200},
		{"the header of all", "/odd/run", []string{"Authorization", bearer}, 200},
		{"both, the same", "/odd/run", []string{"X-Api-Key", staticToken, "Authorization", bearer}, 200},
		{"both, not the same", "/odd/run", []string{"X-Api-Key", "another", "Authorization", bearer}, 401},
		{"a wrong one", "/odd/run", []string{"X-Api-Key", "another"}, 401},
		{"none", "/odd/run", nil, 401},
		{"its header at another route", "/v1/agent/runs/run", []string{"X-Api-Key", staticToken}, 401},
		{"its ticket", "/odd/run?attach=" + g.ticket("run", staticToken), nil, 200},
		{"a ticket where others have it", "/odd/run?ticket=" + g.ticket("run", staticToken), nil, 401},
	} {
		if a := g.Do("GET", tt.path, "", tt.headers...); a.Status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.what, a.Status, a.Body, tt.status)
		}
	}
	a := g.Do("OPTIONS", "/odd/run", "", "Origin", page, "Access-Control-Request-Method", "GET")
	if !strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), "X-Api-Key") {
		t.Errorf("pages may not send it: %v", a.Header)
	}
}
