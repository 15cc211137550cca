package edge

// export writes a run as JSONL.
func (s *Server) export(c *call) error { return errNoRoute }
