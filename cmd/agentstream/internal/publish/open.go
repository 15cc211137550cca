package publish

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/cmd/agentstream/internal/cli"
)

// input is one file to send.
type input struct {
	name  string
	size  int64 // bytes; -1 is not known
	stdin bool
	kind  *format // what it holds; nil is not known yet
}

func totalBytes(inputs []input) int64 {
	var total int64
	for _, in := range inputs {
		if in.size < 0 {
			return -1
		}
		total += in.size
	}
	return total
}

// opened is an input that is being read: its bytes, unpacked.
type opened struct {
	input
	io.Reader
	packed string // how the bytes are packed; "" when they are not
	close  func()
}

// maxWindow bounds what unpacking may hold, in bytes: the largest window of the zstd command without
// --long.
const maxWindow = 128 << 20

// open begins to read an input; reading ends with ctx.
func (p *publishing) open(ctx context.Context, in input) (*opened, error) {
	o := &opened{input: in, close: func() {}}
	var raw io.Reader
	if in.stdin {
		r := cli.Interruptible(ctx, p.cmd.Stdin())
		raw, o.close = r, func() { _ = r.Close() } // nothing was written
	} else {
		f, err := os.Open(in.name)
		if err != nil {
			return nil, err
		}
		raw, o.close = f, func() { _ = f.Close() } // nothing was written
		if in.size < 0 {                           // a pipe with a name waits like standard input
			r := cli.Interruptible(ctx, f)
			raw, o.close = r, func() { _, _ = r.Close(), f.Close() }
		}
	}
	if err := o.unpack(io.TeeReader(raw, &p.meter.read)); err != nil {
		o.close()
		return nil, &badInput{in.name, 0, err}
	}
	return o, nil
}

// unpack finds out from the first bytes whether the rest is compressed.
func (o *opened) unpack(raw io.Reader) error {
	r := bufio.NewReaderSize(raw, 64<<10)
	head, _ := r.Peek(2) // whatever is wrong is found again by whoever reads on
	if len(head) == 2 && head[0] == 0x28 {
		head, _ = r.Peek(4)
	}
	o.Reader = r
	switch {
	case bytes.Equal(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		o.Reader, o.packed = named{"gzip", z}, "gzip"
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		closeRaw := o.close
		o.Reader, o.packed, o.close = named{"zstd", z}, "zstd", func() { z.Close(); closeRaw() }
	}
	return nil
}

// named adds its name to errors. An end in mid-stream is not one.
type named struct {
	name string
	io.Reader
}

func (n named) Read(b []byte) (int, error) {
	m, err := n.Reader.Read(b)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s: %w", n.name, err)
	}
	return m, err
}

// reasonOf returns the text of an error without the path of a file, which is nobody's business in a run.
func reasonOf(err error) string {
	var bad *badInput
	if errors.As(err, &bad) {
		if why := reasonOf(bad.err); bad.row > 0 {
			return fmt.Sprintf("line %d: %s", bad.row, why)
		}
		return reasonOf(bad.err)
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Op + ": " + path.Err.Error()
	}
	return err.Error()
}
