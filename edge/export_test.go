package edge

import "agentstream/edge/live"

// Census counts.
func (s *Server) Census() live.Census { return s.live.Census() }
