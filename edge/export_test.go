package edge

// Census is what a server holds of its streams.
type Census struct {
	Streams int // open
	Parked  int // of them, without a goroutine
	Views   int
}

// Census counts.
func (s *Server) Census() (c Census) {
	s.live.mu.Lock()
	c.Streams = len(s.live.streams)
	s.live.mu.Unlock()
	s.live.views.mu.Lock()
	defer s.live.views.mu.Unlock()
	c.Views = len(s.live.views.open)
	for _, v := range s.live.views.open {
		v.mu.Lock()
		for _, o := range v.groups {
			c.Parked += len(o.parked)
		}
		v.mu.Unlock()
	}
	return c
}
