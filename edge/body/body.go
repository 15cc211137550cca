package body

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/internal/fair"
)

// decodedJSON is how many times its size a body takes beside itself while it is taken apart as one JSON document.
const decodedJSON = 2

// Config sets Bodies up.
type Config struct {
	MaxBytes int64         // of one body, as it came and inflated
	Memory   int64         // of all bodies at once, in bytes: as they arrive, inflated and decoded
	Wait     time.Duration // for a place in Memory
	Timeout  time.Duration // for a body to arrive
	Held     func(int64)   // is called with what bodies take of Memory, whenever that changes; may be nil
}

// Bodies reads the bodies of requests within bounds. It is safe for concurrent use.
type Bodies struct {
	cfg     Config
	Batches batches
	pieces  *pieces
	inflate *inflater
	budget  *budget
}

// New starts nothing.
func New(cfg Config) (*Bodies, error) {
	p := &pieces{places: fair.New(fair.Of(runtime.GOMAXPROCS(0)))}
	f, err := newInflater(cfg.MaxBytes, p)
	return &Bodies{cfg: cfg, pieces: p, inflate: f, budget: newBudget(cfg)}, err
}

// Incoming is the body of one request on its way in. One goroutine uses it.
type Incoming struct {
	w      http.ResponseWriter // of the HTTP server
	r      *http.Request
	Share  Share // what it takes of the memory for bodies
	Most   int64 // bytes of a body whose size is declared, where they may be more than Config.MaxBytes
	Unread bool  // it may be answered before its end, which has not been read
}

// Enter makes c the body of a tenant's request, whose share of the memory is to be given back.
func (bs *Bodies) Enter(c *Incoming, w http.ResponseWriter, r *http.Request, tenant string) {
	c.w, c.r = w, r
	if c.Share.budget == nil { // else an earlier one of the request
		c.Share = Share{budget: bs.budget, tenant: tenant}
	}
}

// Share returns what a tenant's stream takes of the memory for bodies, which is to be given back.
func (bs *Bodies) Share(tenant string) *Share {
	return &Share{budget: bs.budget, tenant: tenant}
}

// Plain holds a body that is a stream to its media types, and to no coding.
func Plain(h http.Header, types ...string) error {
	if err := mediaType(h, types); err != nil {
		return err
	}
	if coding, err := CodingOf(h); err != nil || coding != "" {
		return ends.ErrCoding
	}
	return nil
}

// HasShare reports whether the body has a share of the memory for bodies.
func (c *Incoming) HasShare() bool { return c.Share.budget != nil }

// Leave returns the body's share of the memory.
func (c *Incoming) Leave() { c.Share.Give(c.Share.bytes) }

// Drain reads what is left of the body: no more than all bodies may take.
func (c *Incoming) Drain(r io.Reader) { _, _ = io.CopyN(io.Discard, r, c.Share.budget.total) }

// Document reads the whole body of a request that is one JSON document, bounded in size and time, and inflated. A
// request without Content-Type is taken at its word.
func (bs *Bodies) Document(c *Incoming, types ...string) ([]byte, error) {
	body, err := bs.Into(c, nil, types...)
	if err != nil {
		return body, err
	}
	return body, c.Share.Reserve(c.r.Context(), decodedJSON*int64(len(body)))
}

// Into reads a body in the space of dst, which it returns also with an error.
func (bs *Bodies) Into(c *Incoming, dst []byte, types ...string) ([]byte, error) {
	if err := mediaType(c.r.Header, types); err != nil {
		return dst, err
	}
	coding, err := CodingOf(c.r.Header)
	if err != nil {
		return dst, err
	}
	if coding == "" {
		return bs.readRaw(c, dst)
	}
	in := bs.Batches.Get()
	defer bs.Batches.Put(in)
	if in.Body, err = bs.readRaw(c, in.Body[:0]); err != nil {
		return dst, err
	}
	arrived := c.Share.bytes
	dst, err = bs.inflate.inflate(c.r.Context(), &c.Share, coding, dst, in.Body)
	c.Share.Give(arrived)
	return dst, err
}

// readRaw reads the body as it is.
func (bs *Bodies) readRaw(c *Incoming, dst []byte) ([]byte, error) {
	if most := max(bs.cfg.MaxBytes, c.Most); c.r.ContentLength > most {
		return dst, fmt.Errorf("%w: %d bytes, %d allowed", ends.ErrBodyTooBig, c.r.ContentLength, most)
	}
	rc := http.NewResponseController(c.w)
	if err := rc.SetReadDeadline(time.Now().Add(bs.cfg.Timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return dst, fmt.Errorf("read deadline: %w", err)
	}
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		// a refusal need not wait for the rest
		return dst, fmt.Errorf("full duplex: %w", err)
	}
	c.Unread = true
	from := c.r.Body
	if c.r.ContentLength < 0 { // else it ends at its declared size
		from = http.MaxBytesReader(c.w, from, bs.cfg.MaxBytes)
	}
	ctx := c.r.Context()
	in := reading{r: from, size: c.r.ContentLength, tenant: c.Share.tenant}
	body, err := bs.pieces.readAll(ctx, &in, func(n int64) error { return c.Share.Reserve(ctx, n) }, dst)
	if err != nil {
		return body, err
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return body, fmt.Errorf("read deadline: %w", err)
	}
	c.Unread = false
	return body, nil
}

// maxTrusted is how much space is made for a body on its word alone, in bytes. When so much of it has arrived, space
// for all that its sender declared is taken at once: a body that has begun is not to starve behind others that have.
const MaxTrusted = 64 << 10

// pieces are where a body of undeclared size waits: it takes what it is, whatever that turns out to be, and
// leaves nothing behind that must be collected.
type pieces struct {
	pool   sync.Pool   // of *[maxTrusted]byte
	places *fair.Slots // for bodies that are put together, and are there twice for a moment
}

// reading is a body on its way.
type reading struct {
	r      io.Reader
	size   int64  // -1: undeclared
	tenant string // whose it is
	bare   bool   // errors of r are given as they are
}

// wrap returns an error of reading as that of a body, unless the caller wants it bare.
func (in *reading) wrap(err error) error {
	if in.bare {
		return err
	}
	return BodyError(err)
}

// readAll reads a body into dst, which is empty but for its space, or into what it needs instead. need asks for so many
// bytes more; its error ends the reading.
func (p *pieces) readAll(ctx context.Context, in *reading, need func(int64) error, dst []byte) ([]byte, error) {
	if want := int(min(max(in.size, 511), MaxTrusted)) + 1; cap(dst) < want { // one more: the end is seen without growing
		dst = slices.Grow(dst, want)
	}
	if err := need(int64(cap(dst))); err != nil {
		return dst, err
	}
	for {
		n, err := in.r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, in.wrap(err)
		}
		if len(dst) < cap(dst) {
			continue
		}
		more := cap(dst) // of a small body
		if in.size > int64(len(dst)) {
			more = int(in.size) + 1 - len(dst)
		} else if len(dst) > MaxTrusted {
			return p.gather(ctx, in, need, dst)
		}
		if err := need(int64(more)); err != nil {
			return dst, err
		}
		dst = append(make([]byte, 0, len(dst)+more), dst...)
	}
}

// gather reads what follows begun, piece by piece.
func (p *pieces) gather(ctx context.Context, in *reading, need func(int64) error, begun []byte) ([]byte, error) {
	var list []*[MaxTrusted]byte
	defer func() {
		for _, piece := range list {
			p.pool.Put(piece)
		}
	}()
	size := len(begun)
	for over := false; !over; {
		if err := need(MaxTrusted); err != nil {
			return begun, err
		}
		piece, ok := p.pool.Get().(*[MaxTrusted]byte)
		if !ok {
			piece = new([MaxTrusted]byte)
		}
		list = append(list, piece)
		for n := 0; n < MaxTrusted && !over; {
			k, err := in.r.Read(piece[n:])
			n, size = n+k, size+k
			if over = err == io.EOF; err != nil && !over {
				return begun, in.wrap(err)
			}
		}
	}
	place, err := p.places.Acquire(ctx, in.tenant)
	if err != nil {
		return begun, err
	}
	defer place.Release()
	whole := append(make([]byte, 0, size), begun...)
	for _, piece := range list {
		whole = append(whole, piece[:min(MaxTrusted, size-len(whole))]...)
	}
	return whole, nil
}

func BodyError(err error) error {
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return fmt.Errorf("%w: more than %d bytes", ends.ErrBodyTooBig, big.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ends.ErrBodyTimeout
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("body is cut short: %w", dialect.ErrClientGone)
	}
	// Bad chunking, a reset: whatever it is, the body is not what its sender meant.
	return fmt.Errorf("body cannot be read: %w", dialect.ErrBadRequest)
}

// mediaType holds Content-Type to what a route takes. Parameters other than charset say nothing here.
func mediaType(h http.Header, types []string) error {
	values := h["Content-Type"]
	if len(values) == 0 || len(values) == 1 && (values[0] == "" || slices.Contains(types, values[0])) { // as most write it
		return nil
	}
	if len(values) > 1 {
		return ends.ErrMediaType
	}
	got, params, err := mime.ParseMediaType(values[0])
	if err != nil || !slices.Contains(types, got) {
		return ends.ErrMediaType
	}
	if cs, ok := params["charset"]; ok && !isUTF8(cs) {
		return ends.ErrMediaType
	}
	return nil
}

// isUTF8 reports whether a charset is UTF-8, or a part of it.
func isUTF8(charset string) bool {
	switch strings.ToLower(charset) {
	case "utf-8", "utf8", "us-ascii":
		return true
	}
	return false
}
