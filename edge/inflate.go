package edge

import (
	"bytes"
	"context"
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
)

// What request bodies may be coded with, as a refusal says (RFC 9110 §12.5.3).
const bodyCodings = "gzip, zstd"

// maxZstdWindow is the largest window that a frame may ask for, in bytes: the bound of RFC 9659.
const maxZstdWindow = 8 << 20

// codingOf gives the one coding of a body, "" for none.
func codingOf(h http.Header) (string, error) {
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
	return "", errCoding // also several: nobody needs them, and each is another bomb
}

// inflater expands bodies, a few at a time: what that costs is bounded whatever arrives. It works on bodies that
// have arrived whole, so that a slow sender holds none of its places.
type inflater struct {
	max    int64         // bytes of one body
	places chan struct{} // as many as there are processors
	zstd   *zstd.Decoder
	gzip   sync.Pool
}

func newInflater(most int64) (*inflater, error) {
	n := runtime.GOMAXPROCS(0)
	// The decoder holds a window to the bound of what it may put out, so that must not be under the largest
	// window; inflate looks at the size itself.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(n), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(uint64(max(most, maxZstdWindow))))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &inflater{max: most, places: make(chan struct{}, n), zstd: d}, nil
}

// inflate puts what packed expands to into dst, which is empty but for its space.
func (f *inflater) inflate(ctx context.Context, coding string, dst, packed []byte) ([]byte, error) {
	select {
	case f.places <- struct{}{}:
		defer func() { <-f.places }()
	case <-ctx.Done():
		return dst, context.Cause(ctx)
	}
	var err error
	if coding == "zstd" {
		dst, err = f.zstd.DecodeAll(packed, dst)
	} else {
		dst, err = f.gunzip(dst, packed)
	}
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return dst[:0], fmt.Errorf("zstd window over %d bytes: %w", maxZstdWindow, errBodyTooBig)
	case errors.Is(err, zstd.ErrDecoderSizeExceeded) || int64(len(dst)) > f.max:
		return dst[:0], fmt.Errorf("inflates to more than %d bytes: %w", f.max, errBodyTooBig)
	case err != nil:
		return dst[:0], fmt.Errorf("body is not %s: %w", coding, dialect.ErrBadRequest)
	}
	return dst, nil
}

// gunzip reads one byte more than is allowed at most.
func (f *inflater) gunzip(dst, packed []byte) ([]byte, error) {
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
	return readAll(io.LimitReader(r, f.max+1), dst, 4*int64(len(packed)))
}
