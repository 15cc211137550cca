package edge

// Census is what a server holds of its streams.
type Census struct {
	Streams int // open
	Parked  int // of them, without a goroutine
	Views   int
}

// Census counts.
func (s *Server) Census() (c Census) {
	s.mu.Lock()
	c.Streams = len(s.streams)
	s.mu.Unlock()
	s.views.mu.Lock()
	defer s.views.mu.Unlock()
	c.Views = len(s.views.open)
	for _, v := range s.views.open {
		v.mu.Lock()
		for _, o := range v.groups {
			c.Parked += len(o.parked)
		}
		v.mu.Unlock()
	}
	return c
}
