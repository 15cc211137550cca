package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// tailBytes is the number of bytes of an object's end that are read first. They hold the index of about a thousand
// frames, and most runs completely.
const tailBytes = 64 << 10

// reads reads objects.
type reads struct {
	store   ObjectStore
	codec   *codec
	timeout time.Duration // of one request
}

func (r *reads) read(ctx context.Context, name string, offset, length int64) ([]byte, int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout,
		fmt.Errorf("blob: read %s: no answer within %v", name, r.timeout))
	defer cancel()
	data, size, err := r.store.Read(ctx, name, offset, length)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(err, cause)
	}
	return data, size, err
}

// openedObject is an opened object: its index, and the part of its end that was read with it.
type openedObject struct {
	reads *reads
	name  string
	index *Index
	size  int64
	from  int64 // offset of tail
	tail  []byte
}

// open reads the index, with one request or, for a long run, two. The object must hold the events of the run up to
// last.
func (r *reads) open(ctx context.Context, name string) (*openedObject, error) {
	key, day, last, err := ParseName(name)
	if err != nil {
		return nil, err
	}
	o, err := r.openTail(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("blob: open %s: %w", name, err)
	}
	if ix := o.index; ix.Key() != key || ix.Day != day || ix.Last != last {
		return nil, fmt.Errorf("blob: open %s: it holds run %s of %s up to %d: %w", name, ix.Key(), ix.Day, ix.Last,
			ErrCorrupt)
	}
	return o, nil
}

func (r *reads) openTail(ctx context.Context, name string) (*openedObject, error) {
	tail, size, err := r.read(ctx, name, -1, tailBytes)
	if err != nil {
		return nil, err
	}
	foot, err := parseFooter(tail, size)
	if err != nil {
		return nil, err
	}
	from := size - int64(len(tail))
	end := tail
	if foot.data < from {
		rest, _, err := r.read(ctx, name, foot.data, from-foot.data)
		if err != nil {
			return nil, err
		}
		if int64(len(rest)) != from-foot.data {
			return nil, fmt.Errorf("%d bytes came of %d: %w", len(rest), from-foot.data, ErrCorrupt)
		}
		end, from = append(rest, tail...), foot.data
	}
	ix, err := parseIndex(end[foot.data-from:], foot, r.codec)
	if err != nil {
		return nil, err
	}
	return &openedObject{reads: r, name: name, index: ix, size: size, from: from,
		tail: slices.Clone(end[:foot.data-from])}, nil
}

// bytes returns the approximate memory of the cached object.
func (o *openedObject) bytes() int64 {
	n := int64(len(o.tail)) + 1024
	return n + 160*int64(len(o.index.Frames))
}

// raw returns the bytes of the frames i to j-1 as they are in the object.
func (o *openedObject) raw(ctx context.Context, i, j int) ([]byte, error) {
	from, last := o.index.Frames[i].At, &o.index.Frames[j-1]
	to := last.At + last.Size
	if from >= o.from {
		return o.tail[from-o.from : to-o.from], nil
	}
	data, _, err := o.reads.read(ctx, o.name, from, to-from)
	if err != nil {
		return nil, fmt.Errorf("blob: events %d to %d: %w", o.index.Frames[i].First, last.Last, err)
	}
	if int64(len(data)) != to-from {
		return nil, fmt.Errorf("blob: %s: %d bytes came of %d: %w", o.name, len(data), to-from, ErrCorrupt)
	}
	return data, nil
}

// Bounds of the bytes that a walk reads ahead: each request is larger than the one before.
const (
	aheadFrames = 16
	aheadBytes  = 2 << 20
)

// cursor reads an object's frames in order. It belongs to one walk.
type cursor struct {
	o      *openedObject
	frame  int    // number of the frame in lines; -1: none
	lines  []byte // decoded
	ahead  []byte // the frames next to stop-1, as they are in the object
	next   int
	stop   int
	stride int // frames of the last request
}

func newCursor(o *openedObject) *cursor { return &cursor{o: o, frame: -1} }

// load sets lines to those of frame i. need is the last frame that the walk will read.
func (c *cursor) load(ctx context.Context, i, need int) error {
	if c.frame == i {
		return nil
	}
	if i != c.next || c.next >= c.stop {
		if err := c.request(ctx, i, need); err != nil {
			return err
		}
	}
	f := &c.o.index.Frames[i]
	lines, err := c.o.reads.codec.lines(f, c.ahead[:f.Size])
	if err != nil {
		return fmt.Errorf("blob: %s: %w", c.o.name, err)
	}
	c.ahead, c.next = c.ahead[f.Size:], i+1
	c.frame, c.lines = i, lines
	return nil
}

func (c *cursor) request(ctx context.Context, i, need int) (err error) {
	c.stride = min(max(1, c.stride*2), aheadFrames)
	if i != c.next {
		c.stride = 1
	}
	j, size := i+1, c.o.index.Frames[i].Size
	for j <= need && j-i < c.stride && size+c.o.index.Frames[j].Size <= aheadBytes {
		size += c.o.index.Frames[j].Size
		j++
	}
	c.ahead, err = c.o.raw(ctx, i, j)
	c.next, c.stop = i, j
	return err
}

// each walks the events with after < seq ≤ through of the frame that holds after+1.
func (c *cursor) each(ctx context.Context, after, through schema.Seq, fn func(schema.Record)) error {
	ix := c.o.index
	through = min(through, ix.Last)
	if after+1 < ix.First || after >= through {
		return nil
	}
	i := ix.find(after + 1)
	if err := c.load(ctx, i, ix.find(through)); err != nil {
		return err
	}
	seq := ix.Frames[i].First
	for rest := c.lines; len(rest) > 0 && seq <= through; seq++ {
		end := bytes.IndexByte(rest, '\n')
		line := rest[:end]
		rest = rest[end+1:]
		if seq <= after {
			continue
		}
		r, err := schema.ScanLine(line)
		if err != nil || r.Seq != seq {
			return fmt.Errorf("blob: %s: the line of event %d does not hold it: %w", c.o.name, seq, ErrCorrupt)
		}
		fn(r)
	}
	return nil
}

// page returns the remaining lines of the frame that holds after+1.
func (c *cursor) page(ctx context.Context, after, through schema.Seq) (page []persister.Line, err error) {
	err = c.each(ctx, after, through, func(r schema.Record) {
		page = append(page, persister.Line{Seq: r.Seq, Child: string(r.Child), Body: r.Line})
	})
	return page, err
}

// frames returns the run's own events of persister.StateTypes with after < seq ≤ through, which must be in one frame.
func (c *cursor) frames(ctx context.Context, after, through schema.Seq) (frames []persister.Frame, err error) {
	err = c.each(ctx, after, through, func(r schema.Record) {
		if typ := string(r.Type); r.Child == nil && slices.Contains(persister.StateTypes, typ) {
			frames = append(frames, persister.Frame{Seq: r.Seq, Type: typ, Body: r.Line})
		}
	})
	return frames, err
}

// verify reads all of the object and compares it with its digest.
func (o *openedObject) verify(ctx context.Context) error {
	sum := sha256.New()
	c := newCursor(o)
	for i := range o.index.Frames {
		if err := c.load(ctx, i, len(o.index.Frames)-1); err != nil {
			return err
		}
		_, _ = sum.Write(c.lines) // a hash never fails
	}
	if hex.EncodeToString(sum.Sum(nil)) != o.index.SHA256 {
		return fmt.Errorf("blob: %s: digest of the lines differs: %w", o.name, ErrCorrupt)
	}
	return nil
}

// Verify reads all of an object, compares it with its checksums and its digest, and returns its index.
func Verify(ctx context.Context, s ObjectStore, name string) (*Index, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	r := reads{store: s, codec: c, timeout: DefaultTimeout}
	o, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	return o.index, o.verify(ctx)
}
