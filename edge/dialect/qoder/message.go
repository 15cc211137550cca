package qoder

// messages is what is remembered of messages that are open.
type messages struct {
	lanes map[string]*lane // by child; those with something to remember
}

// lane is what is remembered of one.
type lane struct {
	told []told // oldest first
}

func (m *messages) lane(child string) *lane {
	l := m.lanes[child]
	if l == nil {
		if m.lanes == nil {
			m.lanes = map[string]*lane{}
		}
		l = &lane{}
		m.lanes[child] = l
	}
	return l
}

func (m *messages) clone() messages { return *m }
func (m *messages) size() int       { return 0 }

// before is asked about every record before it is read: what waits for the next record of its lane goes first.
func (p *Projector) before() {}

// message reads messages, their blocks and deltas.
func (p *Projector) message() {}
