package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"agentstream/schema"
)

// Writer writes one run as an object. Its memory is one frame, and 100 to 200 bytes of index for every FrameBytes of
// lines.
type Writer struct {
	out   io.Writer
	codec *codec
	frame int // FrameBytes, or a test's

	index Index
	head  schema.Head // after the packs added
	open  Frame       // the frame in buf
	buf   []byte
	coded []byte
	sum   hash.Hash
}

// newWriter returns a Writer for an object whose first event follows base.
func newWriter(out io.Writer, c *codec, key schema.RunKey, base schema.Head) *Writer {
	return &Writer{out: out, codec: c, frame: FrameBytes, head: base, sum: sha256.New(), index: Index{
		Version: version, Tenant: key.Tenant, Run: key.Run, Day: base.Day, First: base.Last + 1,
	}}
}

// Add appends a pack, which must follow the pack before.
func (w *Writer) Add(p schema.Pack) error {
	if p.First != w.head.Last+1 || p.Count < 1 || p.Key != w.index.Key() {
		return fmt.Errorf("blob: write run %s: pack of %s from %d behind %d", w.index.Key(), p.Key, p.First, w.head.Last)
	}
	if len(w.buf) == 0 {
		w.open = Frame{First: p.First, Head: pointOf(w.head)}
	}
	w.buf = append(w.buf, p.Body...)
	w.head = p.Head
	w.open.Last = p.Last()
	if len(w.buf) < w.frame {
		return nil
	}
	return w.flush()
}

// flush writes the open frame.
func (w *Writer) flush() error {
	_, _ = w.sum.Write(w.buf) // a hash never fails
	w.coded = w.codec.enc.EncodeAll(w.buf, w.coded[:0])
	f := w.open
	f.Size, f.Bytes, f.CRC = int64(len(w.coded)), int64(len(w.buf)), crc32.Checksum(w.coded, castagnoli)
	if n := len(w.index.Frames); n > 0 {
		f.At = w.index.data()
	}
	w.index.Frames = append(w.index.Frames, f)
	w.index.Bytes += f.Bytes
	w.buf = w.buf[:0]
	return w.write(w.coded)
}

func (w *Writer) write(b []byte) error {
	if _, err := w.out.Write(b); err != nil {
		return fmt.Errorf("blob: write run %s: %w", w.index.Key(), err)
	}
	return nil
}

// Close writes the last frame and the index, which it returns. It does not close the underlying writer.
func (w *Writer) Close() (*Index, error) {
	if len(w.buf) > 0 {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	ix := &w.index
	if len(ix.Frames) == 0 {
		return nil, fmt.Errorf("blob: write run %s: it has no events", ix.Key())
	}
	ix.Last, ix.End = w.head.Last, pointOf(w.head)
	ix.Events = int64(ix.Last-ix.First) + 1
	ix.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	if err := ix.check(ix.data()); err != nil {
		return nil, fmt.Errorf("blob: write run %s: %w", ix.Key(), err)
	}
	tail, err := tailOf(ix, w.codec)
	if err != nil {
		return nil, fmt.Errorf("blob: write run %s: %w", ix.Key(), err)
	}
	return ix, w.write(tail)
}
