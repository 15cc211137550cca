package edgetest

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"agentstream/internal/testkit/sentence"
)

// readable returns a client whose tests fail where a refusal is not one sentence for a person (package sentence).
func readable(t testing.TB, client *http.Client) *http.Client {
	over := client.Transport
	if over == nil {
		over = http.DefaultTransport
	}
	reader := *client
	reader.Transport = &wordsReader{over: over, t: t}
	return &reader
}

// wordsReader looks at what is read of refusals, as it is read.
type wordsReader struct {
	over http.RoundTripper
	t    testing.TB
}

func (w *wordsReader) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.over.RoundTrip(r)
	if err == nil && resp.StatusCode >= 400 {
		resp.Body = &wordsBody{ReadCloser: resp.Body, of: w, asked: r.Method + " " + r.URL.Path}
	}
	return resp, err
}

// CloseIdleConnections is for http.Client.
func (w *wordsReader) CloseIdleConnections() {
	if c, can := w.over.(interface{ CloseIdleConnections() }); can {
		c.CloseIdleConnections()
	}
}

type wordsBody struct {
	io.ReadCloser
	of    *wordsReader
	asked string
	got   bytes.Buffer
}

func (b *wordsBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	_, _ = b.got.Write(p[:n])
	if err == io.EOF {
		for _, message := range sentence.Of(b.got.Bytes()) {
			readMessage(b.of.t, b.asked, message)
		}
	}
	return n, err
}

// readMessage fails the test unless a message can be read.
func readMessage(t testing.TB, asked, message string) {
	t.Helper()
	if err := sentence.Check(message); err != nil {
		t.Errorf("%s is refused: %v", asked, err)
	}
}
