package edge

import (
	"agentstream/edge/gate"
	"agentstream/edge/live"
)

// Census counts.
func (s *Server) Census() live.Census { return s.live.Census() }

// OriginAllowed is the check before a WebSocket is opened.
var OriginAllowed = (*Server).originAllowed

// Gate counts what the gate does.
func (s *Server) Gate() gate.Census { return s.gate.Census() }
