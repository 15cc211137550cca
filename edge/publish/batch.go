package publish

import (
	"bytes"

	"agentstream/producers"
	"agentstream/schema"
)

// Batch takes a whole body, answers all its lines and returns the answers. The body's bytes are changed. Where key is
// not "", the lines of a run are one append under that key: stored in their order, pack by pack, and refused at the
// first bad one.
func (s *Stream) Batch(body []byte, key string) []byte {
	in := &s.in
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, []byte{'\n'})
		body = rest
		in.n++
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 {
			_ = in.line(line, false) // nothing stops it
		}
	}
	s.mu.Lock()
	for _, l := range in.fresh {
		if key != "" {
			l.join(key)
		}
		s.push(l)
	}
	for range min(len(in.fresh), s.cfg.Workers) - 1 { // the caller is one
		s.start()
	}
	in.fresh = nil
	s.workers++
	s.drain(new(worker))
	s.workers--
	s.mu.Unlock()
	_ = s.Finish(nil) // without Deliver it does not fail
	return s.out
}

// join makes one post of those that wait. What the lines say of repeats themselves does not count.
func (l *runQueue) join(key string) {
	all := place{line: l.places[len(l.places)-1].line, lines: make([]int, len(l.places))}
	size := 0
	for i := range l.posts {
		size += len(l.posts[i].Body) + 1
	}
	body := make([]byte, 0, size)
	for i := range l.posts {
		body = append(append(body, l.posts[i].Body...), '\n')
		all.lines[i] = l.places[i].line
		all.size += l.places[i].size
	}
	l.posts = append(l.posts[:0], producers.Post{Body: body, Keys: []string{key}})
	l.places = append(l.places[:0], all)
}

// MaxBatchLines is how many lines one body may have.
const MaxBatchLines = 64 * schema.MaxPackEvents
