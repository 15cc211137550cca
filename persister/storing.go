package persister

import (
	"fmt"
	"time"
)

// Storing returns nil, or why what is fetched is not stored: of some pipeline, at least the two newest attempts in a
// row have failed. A store may answer questions and still take nothing, as one does whose disk is full.
func (p *Persister) Storing() error {
	for _, pipe := range p.pipes {
		if err := pipe.storing(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipeline) storing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.troubles[storing]
	if t.attempts < 2 {
		return nil
	}
	return fmt.Errorf("persister: nothing of %s is stored since %s: %s", p.status.Stream, t.since.UTC().Format(time.RFC3339), p.status.LastError)
}
