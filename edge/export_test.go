package edge

// Census counts.
func (s *Server) Census() Census { return s.live.Census() }
