package edge_test

import (
	"bufio"
	"cmp"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// stillTaps are taps on which nothing comes but the place.
type stillTaps struct{ edge.Taps }

func (stillTaps) Follow(ctx context.Context, q schema.TapQuery, emit func([]schema.TapRecord) error) error {
	if err := emit([]schema.TapRecord{{Cursor: q.Tenant}}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// noTaps know no place and no cursor. They fail with the log.
type noTaps struct{ log *toldLog }

func (n noTaps) fault(none error) error {
	if n.log == nil {
		return none
	}
	return cmp.Or(n.log.fault(), none)
}

func (n noTaps) Follow(context.Context, schema.TapQuery, func([]schema.TapRecord) error) error {
	return n.fault(schema.ErrBadCursor)
}

func (n noTaps) Place(context.Context, string, string) (string, error) { return "", n.fault(nil) }

func (n noTaps) Keep(context.Context, string, string, string) error { return n.fault(nil) }

func (n noTaps) Forget(context.Context, string, string) (bool, error) { return false, n.fault(nil) }

// Who may see one run alone, or may not read, gets no tap; a tenant has eight at a time, and its neighbour its own;
// silence has a sign of life.
func TestTapIsOfItsTenant(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Taps, c.KeepAlive, c.Authenticate = stillTaps{}, 20*time.Millisecond, edgetest.ByHeader
	})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	open := func(caller, method, path string) *http.Response {
		t.Helper()
		resp, err := client.Do(h.Request(method, path, "", edgetest.As, caller).WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	const stream, place = "/v1/agent/events/stream", "/v1/agent/taps/bill"
	for _, ask := range []string{"GET " + stream, "GET " + place, "POST " + place, "DELETE " + place, "HEAD " + stream} {
		method, path, _ := strings.Cut(ask, " ")
		for _, caller := range []string{"run:run_1", "may:write,command"} {
			if resp := open(caller, method, path); resp.StatusCode != http.StatusForbidden &&
				resp.StatusCode != http.StatusNotFound {
				t.Error(ask, caller, resp.Status)
			}
		}
	}
	var last *http.Response
	for range 8 {
		last = open("tenant:big", "GET", stream)
		if last.StatusCode != http.StatusOK {
			t.Fatal(last.Status)
		}
	}
	if resp := open("tenant:big", "GET", stream); resp.StatusCode != http.StatusTooManyRequests ||
		resp.Header.Get("Retry-After") == "" {
		t.Error(resp.Status, resp.Header)
	}
	if resp := open("tenant:small", "GET", stream); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	lines := bufio.NewScanner(last.Body)
	signs := 0
	for signs < 2 && lines.Scan() {
		if lines.Text() == ": keepalive" {
			signs++
		}
		if strings.HasPrefix(lines.Text(), "id: ") && lines.Text() != "id: big" {
			t.Error(lines.Text())
		}
	}
}
