package edge

import "agentstream/edge/live"

// Census counts.
func (s *Server) Census() live.Census { return s.live.Census() }

// OriginAllowed is the check before a WebSocket is opened.
var OriginAllowed = (*Server).originAllowed
