package qoder

import "maps"

// thread is a lane of the session: the coordinator's, or a child's.
type thread struct {
	id       string // sthr_…
	child    string // id of the child; "" is the coordinator
	archived string // time; "" when it is not
}

// threads are a session's threads.
type threads struct {
	lanes map[string]*thread // by child
}

func (t *threads) clone() threads {
	return threads{lanes: maps.Clone(t.lanes)} // threads themselves are replaced, never changed
}

func (t *threads) size() int { return 256 * len(t.lanes) }

// of gives a lane's thread, which it makes known.
func (t *threads) of(p *Projector, child string) *thread {
	if th := t.lanes[child]; th != nil {
		return th
	}
	th := &thread{id: ThreadID(p.session, child), child: child}
	if t.lanes == nil {
		t.lanes = map[string]*thread{}
	}
	t.lanes[child] = th
	return th
}

// byID gives a thread by its id; nil when there is none. The coordinator is always there.
func (t *threads) byID(id string) *thread {
	for _, th := range t.lanes {
		if th.id == id {
			return th
		}
	}
	return nil
}

// spawn reads a child that is announced.
func (p *Projector) spawn() {}

// ThreadInfo is what a list of threads is filtered by.
type ThreadInfo struct {
	ID       string
	Child    string // id of the child; "" is the coordinator
	Status   string // idle, running, archived, terminated or blocked
	Archived bool
}

// Threads gives all threads, the coordinator first, then children in the order in which they became known.
func (p *Projector) Threads() []ThreadInfo { return nil }

// AppendThread appends the object of a thread (qoder §1.4).
func (p *Projector) AppendThread(dst []byte, id string) ([]byte, bool) { return dst, false }
