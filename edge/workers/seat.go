package workers

import (
	"encoding/json"
	"sync"
)

// Seat is one agent.
type Seat struct {
	pool   *pool
	places int
	frames chan []byte
	gone   chan struct{} // closed when it has left
	empty  chan struct{} // closed when it is retired and has no task
	leave  sync.Once

	// Guarded by the mutex of Workers.
	tasks   int
	retired bool // it takes no more
	idle    bool // empty is closed
}

// spareFrames is how many frames may wait beside those of tasks. An agent that reads so slowly is taken for gone.
const spareFrames = 64

// Frames returns the server-sent events for the agent.
func (s *Seat) Frames() <-chan []byte { return s.frames }

// Departure returns a channel that is closed when the agent was found not to read.
func (s *Seat) Departure() <-chan struct{} { return s.gone }

// Retire keeps the agent from more tasks. It returns a channel that is closed when those it has are over.
func (s *Seat) Retire() (empty <-chan struct{}) {
	s.pool.of.mu.Lock()
	defer s.pool.of.mu.Unlock()
	s.retire()
	return s.empty
}

// Leave returns the seat, with the tasks that are under way. Leaving twice is harmless.
func (s *Seat) Leave() { s.leave.Do(func() { s.pool.of.leave(s) }) }

// retire needs the mutex, and so do those below.
func (s *Seat) retire() {
	if !s.retired {
		s.retired = true
		s.pool.resize(-s.places)
	}
	s.note()
}

// note closes empty when it is time.
func (s *Seat) note() {
	if s.retired && s.tasks == 0 && !s.idle {
		s.idle = true
		close(s.empty)
	}
}

func (s *Seat) isFree() bool { return !s.retired && s.tasks < s.places }

// send queues a frame. Who does not read is let go.
func (s *Seat) send(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("workers: " + err.Error()) // it is made of what was JSON
	}
	frame := append([]byte("event: "+name+"\ndata: "), data...)
	select {
	case s.frames <- append(frame, "\n\n"...):
	case <-s.gone:
	default:
		go s.Leave()
	}
}
