package qoder

// status is where the session stands.
type status struct{}

func (s *status) clone() status { return *s }

// state reads model calls, turns and lifecycle.
func (p *Projector) state() {}
