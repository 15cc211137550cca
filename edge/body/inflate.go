package body

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/internal/fair"
)

// What request bodies may be coded with, as a refusal says (RFC 9110 §12.5.3).
const BodyCodings = "gzip, zstd"

// maxZstdWindow is the largest window that a frame may ask for, in bytes: the bound of RFC 9659.
const maxZstdWindow = 8 << 20

// CodingOf returns the one coding of a body, "" for none.
func CodingOf(h http.Header) (string, error) {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) == 1 {
		switch strings.ToLower(strings.TrimSpace(values[0])) {
		case "", "identity":
			return "", nil
		case "gzip", "x-gzip":
			return "gzip", nil
		case "zstd":
			return "zstd", nil
		}
	}
	return "", ends.ErrCoding // also several: nobody needs them, and each is another bomb
}

// inflater expands bodies, a few at a time: what that costs is bounded whatever arrives. It works on bodies that
// have arrived whole, so that a slow sender holds none of its places.
type inflater struct {
	max    int64 // bytes of one body
	pieces *pieces
	places *fair.Slots // as many as there are processors
	zstd   *zstd.Decoder
	gzip   sync.Pool
}

func newInflater(most int64, p *pieces) (*inflater, error) {
	n := runtime.GOMAXPROCS(0)
	// The decoder holds a window to the bound of what it may put out, so that must not be under the largest
	// window; inflate looks at the size itself.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(n), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(uint64(max(most, maxZstdWindow))))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &inflater{max: most, pieces: p, places: fair.New(fair.Of(n)), zstd: d}, nil
}

// inflate puts what packed expands to into dst, which is empty but for its space, or into what it needs instead. It
// holds a place while it works, so it waits for room before that: for as much as the body says that it needs.
func (f *inflater) inflate(ctx context.Context, held *Share, coding string, dst, packed []byte) ([]byte, error) {
	says := min(sizeOf(coding, packed), f.max+1)
	if err := held.Reserve(ctx, says); err != nil {
		return dst, err
	}
	place, err := f.places.Acquire(ctx, held.tenant)
	if err != nil {
		return dst, err
	}
	defer place.Release()
	if coding == "zstd" {
		if dst, err = f.zstd.DecodeAll(packed, dst); err == nil {
			err = held.try(int64(cap(dst)) - says)
		}
	} else {
		dst, err = f.gunzip(ctx, held, says, dst, packed)
	}
	switch {
	case errors.Is(err, ends.ErrLimited), errors.Is(err, ends.ErrNoRoom):
		return dst[:0], err
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return dst[:0], fmt.Errorf("%w: its window has more than %d bytes", ends.ErrBodyTooBig, maxZstdWindow)
	case errors.Is(err, zstd.ErrDecoderSizeExceeded) || int64(len(dst)) > f.max:
		return dst[:0], fmt.Errorf("%w: it inflates to more than %d bytes", ends.ErrBodyTooBig, f.max)
	case err != nil:
		return dst[:0], fmt.Errorf("body is not %s: %w", coding, dialect.ErrBadRequest)
	}
	held.Give(says - int64(cap(dst)))
	return dst, nil
}

// sizeOf is what packed says that it expands to, which need not be so; a guess where it says nothing.
func sizeOf(coding string, packed []byte) int64 {
	if coding == "gzip" {
		if len(packed) < 4 {
			return 0
		}
		return int64(binary.LittleEndian.Uint32(packed[len(packed)-4:]))
	}
	var h zstd.Header
	if h.Decode(packed) == nil && h.HasFCS {
		return int64(min(h.FrameContentSize, 1<<62))
	}
	return 4 * int64(len(packed))
}

// gunzip reads one byte more than is allowed at most. What it needs beyond what the body declared must be there at
// once.
func (f *inflater) gunzip(ctx context.Context, held *Share, says int64, dst, packed []byte) ([]byte, error) {
	src := bytes.NewReader(packed)
	r, ok := f.gzip.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer f.gzip.Put(r)
	if err := r.Reset(src); err != nil {
		return dst, err
	}
	defer r.Close() // has nothing to close
	need := func(n int64) error {
		free := min(says, n)
		says -= free
		return held.try(n - free)
	}
	return f.pieces.readAll(ctx, &reading{r: io.LimitReader(r, f.max+1), size: -1, bare: true, tenant: held.tenant},
		need, dst)
}
