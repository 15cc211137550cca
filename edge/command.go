package edge

// commandNames are the last elements of the commands' paths.
var commandNames = []string{"approve_plan", "reject_plan", "pause", "resume", "redirect", "cancel", "answer", "messages"}

// command appends a command to a run.
func (s *Server) command(c *call) error { return errNoRoute }
