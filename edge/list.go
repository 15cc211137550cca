package edge

// listRuns pages through the runs of the tenant.
func (s *Server) listRuns(c *call) error { return errNoRoute }
