package agentstream

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"

	"agentstream/schema"
)

// Blob describes content that the server has stored with a run.
type Blob struct {
	Ref         string `json:"blob_ref"` // for the payload of a tool.end; the same for the same content
	Bytes       int64  `json:"bytes"`
	ContentType string `json:"content_type"` // as it was sent first
}

// PutBlob stores content with the run, which must exist, and returns when it is durable. It may be repeated: the
// same content is stored once. A tool's output that is too large for its event needs no PutBlob: the server moves it.
func (r *Run) PutBlob(ctx context.Context, contentType string, content []byte) (Blob, error) {
	var b Blob
	if err := schema.ValidRunID(r.id); err != nil {
		return b, err
	}
	if content == nil {
		content = []byte{}
	}
	req := request{method: http.MethodPut, target: r.url("blobs"), contentType: contentType, body: content}
	_, err := r.c.call(ctx, req, &b)
	if err == nil && b.Ref != schema.BlobRef(sha256.Sum256(content)) {
		err = fmt.Errorf("server stored other content: %s", b.Ref)
	}
	return b, err
}

// Blob returns content that was stored with the run, whole and unchanged. The error is ErrNotFound when the run has
// no such blob.
func (r *Run) Blob(ctx context.Context, ref string) (Blob, []byte, error) {
	if err := schema.ValidRunID(r.id); err != nil {
		return Blob{}, nil, err
	}
	if err := schema.ValidBlobRef(ref); err != nil {
		return Blob{}, nil, err
	}
	var content []byte
	header, err := r.c.call(ctx, request{method: http.MethodGet, target: r.url("blobs", ref)}, &content)
	if err == nil && schema.BlobRef(sha256.Sum256(content)) != ref {
		err = fmt.Errorf("content does not match its reference %s", ref)
	}
	if err != nil {
		return Blob{}, nil, err
	}
	return Blob{Ref: ref, Bytes: int64(len(content)), ContentType: header.Get("Content-Type")}, content, nil
}
