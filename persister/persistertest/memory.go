package persistertest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Memory is a store in memory. The zero value is not usable; see NewMemory.
type Memory struct {
	// Fault, when set, is called before each call, which fails with the error that it returns.
	Fault func(ctx context.Context, chunks []persister.Chunk) error

	mu          sync.Mutex
	runs        map[schema.RunKey]*memoryRun
	deadLetters []persister.DeadLetter
	known       map[string]bool
	joins       int // number of lanes that were joined so far
	offsets     map[string]memoryOffset
	losses      []persister.Loss
	runLosses   []persister.RunLoss
}

type memoryOffset struct {
	persister.Offset
	owner string
	moved time.Time
}

type memoryRun struct {
	head  schema.Head
	lanes map[string]schema.Lane
	rows  map[schema.Seq]memoryRow
	floor schema.Seq // rows up to this one were removed

	joined       map[string]int // by lane: its number in the order of all joins
	first        schema.Seq
	started, end time.Time
	changed      time.Time
	digest       persister.Digest
	usage        schema.Usage
	session      persister.Session
}

type memoryRow struct {
	typ   string
	child string
	line  []byte
}

var _ SuiteStore = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{runs: make(map[schema.RunKey]*memoryRun), known: make(map[string]bool),
		offsets: make(map[string]memoryOffset)}
}

func (m *Memory) fault(ctx context.Context, chunks []persister.Chunk) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.Fault == nil {
		return nil
	}
	return m.Fault(ctx, chunks)
}

// Transfer implements persister.Store.
func (m *Memory) Transfer(ctx context.Context, t *persister.Transfer) (persister.Result, error) {
	if err := m.fault(ctx, t.Chunks); err != nil {
		return persister.Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.ShouldMoveOffset() {
		if have := m.offsets[t.To.Stream]; !have.Same(t.From) && (have.Identity != "" || t.From.Identity != "") {
			return persister.Result{}, fmt.Errorf("memory: offset of %s is %d: %w", t.To.Stream, have.Position,
				persister.ErrOvertaken)
		}
		m.offsets[t.To.Stream] = memoryOffset{t.To, t.Owner, time.Now()}
	}
	res := m.append(t.Chunks)
	m.losses = append(m.losses, t.Losses...)
	m.runLosses = append(m.runLosses, t.RunLosses...)
	m.putDeadLetters(t.DeadLetters)
	m.putDeadLetters(t.Conflicting(res.Conflicts))
	return res, nil
}

// Offsets implements persister.Store.
func (m *Memory) Offsets(ctx context.Context) ([]persister.StoredOffset, error) {
	if err := m.fault(ctx, nil); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []persister.StoredOffset
	for _, o := range m.offsets {
		out = append(out, persister.StoredOffset{Offset: o.Offset, Owner: o.owner, Idle: time.Since(o.moved)})
	}
	return out, nil
}

// Losses returns what was recorded as lost.
func (m *Memory) Losses() ([]persister.Loss, []persister.RunLoss) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.losses), slices.Clone(m.runLosses)
}

// Append implements deadletter.Redriver.
func (m *Memory) Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error) {
	if err := m.fault(ctx, chunks); err != nil {
		return persister.Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.append(chunks), nil
}

func (m *Memory) append(chunks []persister.Chunk) persister.Result {
	days := make(map[schema.RunKey]string)
	for key, r := range m.runs {
		days[key] = r.head.Day
	}
	b := persister.Arrange(chunks, days)
	for i := range b.Runs {
		m.move(&b.Runs[i])
	}
	var res persister.Result
	for _, c := range b.Conflicts {
		if m.runs[chunks[c.Chunk].Key].floor == schema.MaxSeq {
			res.Dropped++
			continue
		}
		res.Conflicts = append(res.Conflicts, c)
	}
	for i := range b.Rows {
		row := &b.Rows[i]
		run := m.runs[row.Chunk.Key]
		rows := run.rows
		switch have, ok := rows[row.Seq]; {
		case row.Seq <= run.floor:
			res.Dropped++
		case !ok:
			rows[row.Seq] = memoryRow{row.Type, row.Chunk.Child, bytes.Clone(row.Line)}
			res.Inserted++
		case bytes.Equal(have.line, row.Line):
			res.Repeated++
		default:
			res.Conflicts = append(res.Conflicts, row.At)
		}
	}
	return res
}

func (m *Memory) move(r *persister.Run) {
	have := m.runs[r.Key]
	if have == nil {
		have = &memoryRun{lanes: make(map[string]schema.Lane), rows: make(map[schema.Seq]memoryRow),
			joined: make(map[string]int)}
		m.runs[r.Key] = have
	}
	if have.floor == schema.MaxSeq {
		return
	}
	have.changed = time.Now()
	m.list(have, r)
	if r.Head.Last > have.head.Last {
		have.head = r.Head
		have.head.Lane, have.head.Stored = schema.Lane{}, 0
	}
	for name, l := range r.Lanes {
		if _, ok := have.lanes[name]; !ok {
			m.joins++
			have.joined[name] = m.joins
		}
		if l.Epoch > have.lanes[name].Epoch || have.lanes[name].Owner == "" {
			have.lanes[name] = l
		}
	}
}

// SetFloor removes the rows of a run up to floor. With schema.MaxSeq the run is deleted.
func (m *Memory) SetFloor(key schema.RunKey, floor schema.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[key]
	if r == nil {
		return
	}
	r.floor = floor
	for seq := range r.rows {
		if seq <= floor {
			delete(r.rows, seq)
		}
	}
}

// Floor returns the seq up to which rows were removed, 0 when none were.
func (m *Memory) Floor(key schema.RunKey) schema.Seq {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[key]; r != nil {
		return r.floor
	}
	return 0
}

// PutDeadLetters implements deadletter.Redriver.
func (m *Memory) PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error {
	if err := m.fault(ctx, nil); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putDeadLetters(deadLetters)
	return nil
}

func (m *Memory) putDeadLetters(deadLetters []persister.DeadLetter) {
	for _, l := range deadLetters {
		if id := string(l.ID()); !m.known[id] {
			m.known[id] = true
			m.deadLetters = append(m.deadLetters, l)
		}
	}
}

// Ping returns the error of Fault.
func (m *Memory) Ping(ctx context.Context) error { return m.fault(ctx, nil) }

// DeadLetters returns the newest dead letters first.
func (m *Memory) DeadLetters(_ context.Context, limit int) ([]persister.DeadLetter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.deadLetters)
	slices.Reverse(out)
	return out[:min(limit, len(out))], nil
}

// Head returns the newest position stored.
func (m *Memory) Head(_ context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[key]
	if r == nil {
		return schema.Head{}, nil
	}
	h := r.head
	h.Lane = r.lanes[lane]
	return h, nil
}

// Packs iterates over the run's events.
func (m *Memory) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	head, _ := m.Head(ctx, key, "")
	return persister.Walk(ctx, memoryRows{m}, key, head.Day, after, through)
}

type memoryRows struct{ m *Memory }

func (r memoryRows) Page(_ context.Context, key schema.RunKey, _ string, after, through schema.Seq) ([]persister.Line,
	error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	var page []persister.Line
	for _, seq := range r.seqs(key) {
		if row := r.m.runs[key].rows[seq]; seq > after && seq <= through && len(page) < persister.PageRows {
			page = append(page, persister.Line{Seq: seq, Child: row.child, Body: row.line})
		}
	}
	return page, nil
}

func (r memoryRows) Frames(_ context.Context, key schema.RunKey, _ string, through schema.Seq) ([]persister.Frame,
	error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	var frames []persister.Frame
	for _, seq := range r.seqs(key) {
		if row := r.m.runs[key].rows[seq]; seq <= through && row.child == "" &&
			slices.Contains(persister.StateTypes, row.typ) {
			frames = append(frames, persister.Frame{Seq: seq, Type: row.typ, Body: row.line})
		}
	}
	return frames, nil
}

func (r memoryRows) seqs(key schema.RunKey) []schema.Seq {
	run := r.m.runs[key]
	if run == nil {
		return nil
	}
	seqs := make([]schema.Seq, 0, len(run.rows))
	for seq := range run.rows {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}
