package agentstream

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"testing"

	"agentstream/schema"
)

// A blob is put and fetched as it is, over cuts; what is not what was asked for is an error.
func TestBlob(t *testing.T) {
	content := bytes.Repeat([]byte("a\x00b"), 1000)
	ref := schema.BlobRef(sha256.Sum256(content))
	damaged, asked := false, 0
	c := client(t, Config{}, func(r *http.Request) (*http.Response, error) {
		if asked++; asked%2 == 1 {
			return nil, io.ErrUnexpectedEOF
		}
		switch r.Method + " " + r.URL.Path {
		case "PUT /v1/agent/runs/run_1/blobs":
			if body, _ := io.ReadAll(r.Body); !bytes.Equal(body, content) || r.Header.Get("Content-Type") != "image/png" {
				t.Errorf("%d bytes of %s", len(body), r.Header.Get("Content-Type"))
			}
			return answer(201, `{"blob_ref":"`+ref+`","bytes":3000,"content_type":"image/png"}`, nil), nil
		case "GET /v1/agent/runs/run_1/blobs/" + ref:
			if damaged {
				return answer(200, "other", nil), nil
			}
			return answer(200, string(content), http.Header{"Content-Type": {"image/png"}}), nil
		}
		return answer(404, `{"error":{"code":"NOT-FOUND","message":"m"}}`, nil), nil
	})
	want := Blob{ref, 3000, "image/png"}
	if b, err := c.Run("run_1").PutBlob(t.Context(), "image/png", content); err != nil || b != want {
		t.Errorf("%+v: %v", b, err)
	}
	if b, got, err := c.Run("run_1").Blob(t.Context(), ref); err != nil || b != want || !bytes.Equal(got, content) {
		t.Errorf("%+v, %d bytes: %v", b, len(got), err)
	}
	damaged = true
	if _, got, err := c.Run("run_1").Blob(t.Context(), ref); err == nil || got != nil {
		t.Errorf("damaged: %q, %v", got, err)
	}
	if _, _, err := c.Run("run_2").Blob(t.Context(), ref); !errors.Is(err, ErrNotFound) {
		t.Errorf("another run's: %v", err)
	}
	if _, _, err := c.Run("run_1").Blob(t.Context(), "../x"); !errors.Is(err, schema.ErrNoBlob) {
		t.Errorf("no blob_ref: %v", err)
	}
}
