package qoder

// messages is what is remembered of messages that are open.
type messages struct{}

func (m *messages) clone() messages { return *m }
func (m *messages) size() int       { return 0 }

// before is asked about every record before it is read: what waits for the next record of its lane goes first.
func (p *Projector) before() {}

// message reads messages, their blocks and deltas.
func (p *Projector) message() {}
