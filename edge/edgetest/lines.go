package edgetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// Raw sends a request as it stands, past every client that would tidy it up.
func (h *House) Raw(text string) Reply {
	h.T.Helper()
	c, err := net.Dial("tcp", h.Addr)
	if err != nil {
		h.T.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		h.T.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		h.T.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		h.T.Fatalf("%.200q: %v", text, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.T.Fatalf("%.200q: %v", text, err)
	}
	return Reply{resp.StatusCode, resp.Header, string(b), resp.Close}
}

// GoodLine is an event that every route accepts.
const GoodLine = `{"type":"text.delta","payload":{"text":"x"}}`

// RefOf returns the reference of a blob.
func RefOf(body string) string { return schema.BlobRef(sha256.Sum256([]byte(body))) }

// StallBlob sends the head of a PUT and so much of its body, and no more.
func StallBlob(t testing.TB, h *House, run string, size, sent int) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "PUT /v1/agent/runs/%s/blobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", run, size)
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write(bytes.Repeat([]byte("x"), sent)) // refused ones are not read to their end
	return c
}

// Family knows whose child the children of the scenarios are: run's, in tenant acme.
type Family struct{}

// Parent returns the root of a child of the scenario with children.
func (Family) Parent(_ context.Context, tenant, child string) (string, error) {
	switch child {
	case schematest.ChildA, schematest.ChildB, schematest.Grandchild:
		if tenant == "acme" {
			return "run", nil
		}
	}
	return "", fanout.ErrNotFound
}

// Runs returns no run.
func (Family) Runs(context.Context, string, schema.RunsQuery) ([]schema.RunInfo, error) {
	return nil, nil
}

// Say appends one event and gives the answer.
func (h *House) Say(run, typ, payload string, headers ...string) Reply {
	h.T.Helper()
	return h.Do("POST", "/v1/agent/runs/"+run+"/events", `{"type":"`+typ+`","payload":`+payload+`}`, headers...)
}

// Must fails the test unless an event is taken.
func (h *House) Must(run, typ, payload string, headers ...string) Reply {
	h.T.Helper()
	a := h.Say(run, typ, payload, headers...)
	if a.Status != http.StatusOK {
		h.T.Fatalf("%s to %s: %d %s", typ, run, a.Status, a.Body)
	}
	return a
}

// Spawn stores the event that makes a child known.
func (h *House) Spawn(run, child string) Reply {
	h.T.Helper()
	return h.Must(run, schema.TypeChildSpawn, `{"child_id":"`+child+`"}`)
}

// RunsPath is what the paths of runs begin with.
const RunsPath = "/v1/agent/runs"

// Gzip returns a text as a body with the coding gzip.
func Gzip(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Refused counts what Hooks.IngestRefused is told.
type Refused struct {
	mu sync.Mutex
	By map[dialect.Reason]int
}

// Hook counts a refusal; it is edge.Hooks.Refused.
func (r *Refused) Hook(reason dialect.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.By == nil {
		r.By = map[dialect.Reason]int{}
	}
	r.By[reason]++
}

// Of returns how many refusals had a reason.
func (r *Refused) Of(reason dialect.Reason) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.By[reason]
}

// CountingReader counts the bytes that pass through it.
type CountingReader struct {
	R io.Reader
	N int64
}

// Read reads and counts.
func (c *CountingReader) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	c.N += int64(n)
	return n, err
}

// RunOf returns the key of a run of acme.
func RunOf(id string) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: id} }
