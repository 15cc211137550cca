package edge

func (s *Server) socket(c *call) error { return errNoRoute }
func (s *Server) rpc(c *call) error    { return errNoRoute }
