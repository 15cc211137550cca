package edge

import (
	"agentstream/edge/gate"
	"agentstream/edge/live"
)

// Census counts the streams that are open, and what is made for them.
func (s *Server) Census() live.Census { return s.live.Census() }

// Gate counts the connections and the streams that the gate lets in.
func (s *Server) Gate() gate.Census { return s.gate.Census() }
