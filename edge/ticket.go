package edge

// createTicket makes a stream ticket.
func (s *Server) createTicket(c *call) error { return errNoRoute }
