package agentstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"

	"agentstream/schema"
)

// Blob describes content that the server keeps with a run.
type Blob struct {
	Ref         string `json:"blob_ref"` // for the payload of a tool.end; the same for the same content
	Bytes       int64  `json:"bytes"`
	ContentType string `json:"content_type"` // as it was sent first
}

// PutBlob keeps content with a run, which must exist, and answers when it is durable. It may be repeated: the same
// content is kept once. An output that is too large for its event need not be put: the server moves it by itself.
func (c *Client) PutBlob(ctx context.Context, run, contentType string, content []byte) (Blob, error) {
	var b Blob
	if err := schema.ValidRunID(run); err != nil {
		return b, err
	}
	if content == nil {
		content = []byte{}
	}
	_, err := c.call(ctx, request{method: http.MethodPut, target: c.runURL(run, "blobs"), contentType: contentType, body: content}, &b)
	if err == nil && b.Ref != schema.BlobRef(sha256.Sum256(content)) {
		err = fmt.Errorf("server has kept something else: %s", b.Ref)
	}
	return b, err
}

// Blob returns content that is kept with a run, whole and as it was put. The error is ErrNotFound when the run has no
// such blob.
func (c *Client) Blob(ctx context.Context, run, ref string) (Blob, []byte, error) {
	if err := schema.ValidRunID(run); err != nil {
		return Blob{}, nil, err
	}
	if err := schema.ValidBlobRef(ref); err != nil {
		return Blob{}, nil, err
	}
	var content []byte
	header, err := c.call(ctx, request{method: http.MethodGet, target: c.runURL(run, "blobs", ref)}, &content)
	if err == nil && schema.BlobRef(sha256.Sum256(content)) != ref {
		err = errors.New("the answer is not this blob")
	}
	if err != nil {
		return Blob{}, nil, err
	}
	return Blob{Ref: ref, Bytes: int64(len(content)), ContentType: header.Get("Content-Type")}, content, nil
}
