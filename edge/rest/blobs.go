package rest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strings"
	"time"

	"agentstream/edge/body"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/fanout"
	"agentstream/schema"
)

// Blobs keeps large content with runs, so that every node can read it once it is put. Implementations are safe for
// concurrent use, and do not look whether there is such a run.
type Blobs interface {
	// Put keeps what pieces give: each of schema.BlobPiece bytes but for the last, which is shorter and may be empty. A
	// piece is valid until the next one is asked for. Of content that the run has already stored is false, and the type
	// is the one that it had. The error wraps schema.ErrFull when there is no room.
	Put(ctx context.Context, key schema.RunKey, mediaType string, pieces iter.Seq2[[]byte, error]) (blob schema.Blob,
		stored bool, err error)
	// Get finds a blob and walks its pieces. The error wraps schema.ErrNoBlob when the run has no such blob.
	Get(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error)
	// List returns the blobs of a run; their types may be missing.
	List(ctx context.Context, key schema.RunKey) ([]schema.Blob, error)
	// Drop removes one blob of a run.
	Drop(ctx context.Context, key schema.RunKey, ref string) error
}

// maxRunBlobs is how many blobs a run may have.
const maxRunBlobs = 10_000

// maxMediaType is the longest media type of a blob, in bytes.
const maxMediaType = 255

// blobsOf returns the run that keeps the blobs of what an id of the path names: of a child, its root. An id that names
// nothing stays what it is.
func (a *API) blobsOf(ctx context.Context, key schema.RunKey) (schema.RunKey, error) {
	src, _, err := a.cfg.Runs.Locate(ctx, key)
	if errors.Is(err, fanout.ErrNotFound) {
		return key, nil
	}
	return src.Key, err
}

// putBlob keeps the body as a blob of a run that exists and has not expired. The body is stored as it arrives: no more
// than a piece of it is held.
func (a *API) putBlob(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	mediaType, err := blobType(c.Request.Header)
	if err != nil {
		return err
	}
	if coding, err := body.CodingOf(c.Request.Header); err != nil || coding != "" {
		return dialect.Refuse(ends.ErrCoding, "a blob is kept as it is; send it without Content-Encoding")
	}
	if c.Request.ContentLength > a.cfg.MaxBlobBytes {
		return fmt.Errorf("%w: %d bytes, %d allowed", ends.ErrBodyTooBig, c.Request.ContentLength, a.cfg.MaxBlobBytes)
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	if key, err = a.blobsOf(ctx, key); err != nil {
		return err
	}
	if err := a.checkKept(ctx, key); err != nil {
		return err
	}
	left, err := a.blobsLeft(ctx, key, max(c.Request.ContentLength, 0))
	if err != nil {
		return err
	}
	if c.Request.ContentLength > 0 {
		if err := c.Spend(0, c.Request.ContentLength); err != nil {
			return err
		}
	}
	blob, stored, err := a.cfg.Blobs.Put(c.Request.Context(), key, mediaType, a.arriving(c, left))
	if err != nil {
		return err
	}
	if stored {
		a.blobs.add(key.Tenant, blob.Size)
	}
	if c.Request.ContentLength < 0 {
		_ = c.Spend(0, blob.Size) // it counts for those that follow
	}
	status := http.StatusOK
	if stored {
		status = http.StatusCreated
	}
	c.Header().Set("Location", "/v1/agent/runs/"+c.Path("run")+"/blobs/"+blob.Ref)
	c.Tag(blob.Ref)
	body, err := json.Marshal(struct {
		Ref   string `json:"blob_ref"`
		Bytes int64  `json:"bytes"`
		Type  string `json:"content_type"`
	}{blob.Ref, blob.Size, blob.Type})
	if err != nil {
		return err
	}
	c.Reply(status, body)
	return nil
}

// blobType reads the media type of a blob, which is any.
func blobType(h http.Header) (string, error) {
	values := h["Content-Type"]
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return "application/octet-stream", nil
	}
	text := values[0]
	if _, _, err := mime.ParseMediaType(text); err != nil || len(values) > 1 || len(text) > maxMediaType {
		return "", fmt.Errorf("Content-Type is not one media type of at most %d bytes: %w", maxMediaType,
			dialect.ErrBadRequest)
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return "", fmt.Errorf("Content-Type is not printable ASCII: %w", dialect.ErrBadRequest)
		}
	}
	if schema.IsSealedBlob(text) {
		return "", fmt.Errorf("Content-Type %s is not for clients: %w", schema.SealedBlobType, dialect.ErrBadRequest)
	}
	return text, nil
}

// checkKept returns an error unless the run exists and its newest event can be had: of one that has expired,
// blobs are not taken any more, because nothing would remove them.
func (a *API) checkKept(ctx context.Context, key schema.RunKey) error {
	head, err := a.cfg.Runs.Existing(ctx, key)
	if err != nil {
		return err
	}
	for _, err := range a.cfg.Runs.Hub.Packs(ctx, key, head.Last-1, head.Last) {
		return err
	}
	return nil
}

// arriving reads a body piece by piece. Space for a piece is made, and counted, once some of it has come.
func (a *API) arriving(c *protocol.Call, left int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := &arrival{a: a, c: c, rc: http.NewResponseController(c.Writer), left: left}
		c.Incoming()
		if err := in.rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			// a refusal need not wait for the rest
			yield(nil, fmt.Errorf("full duplex: %w", err))
			return
		}
		c.In.Unread = true
		for {
			n, err := in.fill()
			if err != nil && err != io.EOF {
				yield(nil, err)
				return
			}
			if !yield(in.buf[:n], nil) || err == io.EOF {
				return
			}
		}
	}
}

// arrival is a blob on its way in.
type arrival struct {
	a     *API
	c     *protocol.Call
	rc    *http.ResponseController
	buf   []byte
	total int64
	left  int64 // bytes that the run may still be given
}

// fill reads a whole piece, or what is left before io.EOF.
func (in *arrival) fill() (n int, err error) {
	if err := in.rc.SetReadDeadline(time.Now().Add(in.a.cfg.BodyTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return 0, fmt.Errorf("read deadline: %w", err)
	}
	for n < schema.BlobPiece {
		if n == len(in.buf) {
			if err := in.grow(); err != nil {
				return n, err
			}
		}
		k, err := in.c.Request.Body.Read(in.buf[n:])
		n, in.total = n+k, in.total+int64(k)
		switch {
		case in.total > in.a.cfg.MaxBlobBytes:
			return n, fmt.Errorf("%w: more than %d bytes", ends.ErrBodyTooBig, in.a.cfg.MaxBlobBytes)
		case in.total > in.left:
			return n, dialect.Refuse(ends.ErrRunBlobs, "the blob has more than the %d bytes that are left for it", in.left)
		case err == io.EOF && n < schema.BlobPiece:
			return n, in.rest()
		case err != nil && err != io.EOF:
			return n, body.BodyError(err)
		}
	}
	return n, nil
}

// rest takes the deadline away, which would break off what comes later on the connection, and says that it is the end.
func (in *arrival) rest() error {
	if err := in.rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("read deadline: %w", err)
	}
	in.c.In.Unread = false
	return io.EOF
}

func (in *arrival) grow() error {
	size := schema.BlobPiece
	if len(in.buf) == 0 {
		size = body.MaxTrusted
	}
	if err := in.c.In.Share.Reserve(in.c.Request.Context(), int64(size-len(in.buf))); err != nil {
		return err
	}
	in.buf = append(make([]byte, 0, size), in.buf...)[:size]
	return nil
}

// getBlob answers with a blob as it was put. It is to be saved and not to be shown: whoever may write to a run would
// have pages of this origin otherwise.
func (a *API) getBlob(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	ref := c.Path("ref")
	ctx, cancel := c.LogContext()
	defer cancel()
	if key, err = a.blobsOf(ctx, key); err != nil {
		return err
	}
	if _, err := a.cfg.Runs.Existing(ctx, key); err != nil {
		return err
	}
	if err := schema.ValidBlobRef(ref); err != nil {
		return err
	}
	c.Incoming()
	if err := c.In.Share.Reserve(ctx, 2*schema.BlobPiece); err != nil {
		// the piece at hand, and what is behind the last whole one
		return err
	}
	blob, pieces, err := a.cfg.Blobs.Get(ctx, key, ref)
	if errors.Is(err, schema.ErrNoBlob) {
		if gone := a.checkKept(ctx, key); errors.Is(gone, fanout.ErrExpired) {
			return gone
		}
	}
	if err != nil {
		return err
	}
	if blob.Size < schema.BlobPiece {
		c.In.Share.Give(2*schema.BlobPiece - blob.Size)
	}
	h := c.Header()
	h["Cache-Control"] = []string{"private, no-cache"} // it may be asked for again, and must be: a run can be deleted
	c.Tag(blob.Ref)
	if hasTag(c.Request.Header["If-None-Match"], blob.Ref) {
		c.Writer.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", blob.Type)
	h.Set("Content-Disposition", `attachment; filename="`+blob.Ref+`"`)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	c.Length(blob.Size)
	if c.Request.Method == http.MethodHead {
		c.Writer.WriteHeader(http.StatusOK)
		return nil
	}
	return a.writeBlob(c, blob, pieces)
}

// writeBlob sends a blob. Its end is sent only when its sum is right, so that what is damaged is cut and not taken.
func (a *API) writeBlob(c *protocol.Call, blob schema.Blob, pieces iter.Seq2[[]byte, error]) error {
	out := transport.NewResponse("blob", c.Writer, http.NewResponseController(c.Writer), a.cfg.WriteTimeout)
	sum, left := sha256.New(), blob.Size
	for piece, err := range pieces {
		if err != nil {
			return err
		}
		sum.Write(piece) // never fails
		if left -= int64(len(piece)); left < 0 || left == 0 && schema.BlobRef([sha256.Size]byte(sum.Sum(nil))) != blob.Ref {
			return fmt.Errorf("%s of run %s: %w", blob.Ref, c.Run, ends.ErrDamaged)
		}
		if _, err := out.Write(piece); err != nil {
			return err
		}
	}
	if left > 0 {
		return fmt.Errorf("%s of run %s lacks %d bytes: %w", blob.Ref, c.Run, left, ends.ErrDamaged)
	}
	if blob.Size == 0 {
		c.Writer.WriteHeader(http.StatusOK) // nothing was written that would have shown it
	}
	return out.Rest()
}

// hasTag reports whether an If-None-Match names a blob (RFC 9110 §13.1.2).
func hasTag(values []string, ref string) bool {
	for tag := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == "*" || tag == `"`+ref+`"` {
			return true
		}
	}
	return false
}
