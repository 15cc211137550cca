package live

import (
	"sync"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/state"
	"agentstream/fanout"
	"agentstream/schema"
)

// How much is kept of replays: of one view, and of all views of a node, in bytes of frames.
const (
	replayBytes  = 4 << 20
	replaysBytes = 64 << 20
)

// replayApart is how often, in records, a chunk ends for certain, so that those who began at different places share the
// next.
const replayApart = 512

// replays are frames of a view's history, made once for all who read it at the same time. It is safe for concurrent
// use.
type replays struct {
	all *views

	mu      sync.Mutex
	readers map[projectionKey]int
	chunks  map[chunkKey]*chunk
	order   []*chunk // of those that are kept, the oldest first
	bytes   int
	texts   int // bytes of them in the newest chunk, about what the next one needs
}

// chunkKey names a chunk by the place that it follows.
type chunkKey struct {
	projectionKey
	after schema.Seq
}

// chunk is what a projection makes of some records, which follow each other. The reader who asked for it first makes
// it, and then closes done.
type chunk struct {
	of   *replays
	key  chunkKey
	size int // as counted in replays.bytes

	done   chan struct{}
	err    error // it was not made: who waited for it tries by itself
	list   []dialect.Frame
	texts  dialect.Frames   // the memory of the list's texts
	p      dialect.Stateful // behind them; never fed again
	last   schema.Seq
	events int
}

// enter counts a reader of history in, and leave out. Nothing is kept for nobody.
func (rs *replays) enter(of projectionKey) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.readers == nil {
		rs.readers, rs.chunks = make(map[projectionKey]int), make(map[chunkKey]*chunk)
	}
	rs.readers[of]++
}

func (rs *replays) leave(of projectionKey) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.readers[of]--; rs.readers[of] > 0 {
		return
	}
	if delete(rs.readers, of); len(rs.readers) == 0 {
		for len(rs.order) > 0 {
			rs.drop()
		}
	}
}

// at returns the chunk behind a place, and whether the caller must make it; nil when nobody else reads it.
func (rs *replays) at(of projectionKey, after schema.Seq) (c *chunk, mine bool) {
	key := chunkKey{of, after}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if c = rs.chunks[key]; c != nil || rs.readers[of] < 2 {
		return c, false
	}
	c = &chunk{of: rs, key: key, done: make(chan struct{})}
	c.texts.Grow(rs.texts)
	rs.chunks[key], rs.order = c, append(rs.order, c)
	return c, true
}

// drop lets the oldest chunk go. It needs mu.
func (rs *replays) drop() {
	c := rs.order[0]
	if rs.order[0], rs.order = nil, rs.order[1:]; rs.chunks[c.key] == c {
		delete(rs.chunks, c.key)
	}
	rs.count(c, 0)
}

// count sets what a chunk is counted with. It needs mu.
func (rs *replays) count(c *chunk, size int) {
	rs.bytes += size - c.size
	rs.all.replayed.Add(int64(size - c.size))
	c.size = size
}

// frameCost is about what a frame takes besides its texts.
const frameCost = 160

// ready ends the making of a chunk: it is kept, unless there is an error.
func (c *chunk) ready(err error) {
	texts := 0
	for _, f := range c.list {
		texts += len(f.Event) + len(f.Data) + len(f.Token)
	}
	c.err = err
	close(c.done)
	rs := c.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.chunks[c.key] != c { // it was let go meanwhile
		return
	}
	if err != nil {
		delete(rs.chunks, c.key)
		return
	}
	rs.texts = texts
	rs.count(c, texts+len(c.list)*frameCost)
	for len(rs.order) > 0 && (rs.bytes > replayBytes || rs.all.replayed.Load() > replaysBytes) {
		rs.drop()
	}
}

// fill makes the chunk with a projector that has everything before it.
func (c *chunk) fill(p dialect.Stateful, b fanout.Batch) error {
	err := ends.ErrPanic // until it has returned
	defer func() { c.ready(err) }()
	c.p, c.list = p, make([]dialect.Frame, 0, b.Packs[len(b.Packs)-1].Last()-b.After)
	err = c.project(b)
	return err
}

func (c *chunk) project(b fanout.Batch) error {
	for i := range b.Packs {
		for r, err := range b.Packs[i].Records(b.After) {
			if err != nil {
				return err
			}
			if err := c.p.Project(&c.texts, r); err != nil {
				return state.ProjectError(r, err)
			}
			list, over := upToLast(c.texts.List)
			c.list, c.texts.List = append(c.list, list...), c.texts.List[:0]
			if c.last, c.events = r.Seq, c.events+1; over {
				return nil
			}
		}
	}
	return nil
}
