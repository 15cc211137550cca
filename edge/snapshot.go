package edge

// snapshot answers with the fold of a run.
func (s *Server) snapshot(c *call) error { return errNoRoute }
