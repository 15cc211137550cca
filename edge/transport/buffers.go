package transport

import "sync"

// Buffers is where sinks take the memory from in which they collect frames, and only while they do. The
// zero value is ready. It is safe for concurrent use.
type Buffers struct{ pool sync.Pool }

// Get returns an empty buffer.
func (p *Buffers) Get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 4<<10)
	return &b
}

// Put takes a buffer back, which must not be used any more; nil is none. One that has grown beyond two
// chunks is let go.
func (p *Buffers) Put(b *[]byte) {
	if b == nil || cap(*b) > 2*Chunk {
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}
