package agentstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"agentstream/edge"
	"agentstream/schema"
)

// publishMany has many runs say one event at a time through one Publisher, and holds that each has its own, in order.
func publishMany(t *testing.T, c *Client, runs, each int) {
	t.Helper()
	p := c.Publisher()
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			run := fmt.Sprintf("run_%d", i)
			for n := range each {
				e := schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":"%d","run_id":"no"}`, n)}
				if n == 3 {
					e.Extra = []byte(`"key":"an event's own"`)
				}
				r, err := p.AppendLines(t.Context(), run, append(AppendNew(nil, &e), '\n'))
				if err != nil || r.First != schema.Seq(n+1) || r.Last != r.First {
					t.Errorf("%s, %d: %+v, %v", run, n, r, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range runs {
		n := 0
		s := c.Run(fmt.Sprintf("run_%d", i)).Watch(t.Context(), Options{Detail: DetailFull})
		for e, err := range s.All(t.Context()) {
			if err != nil || string(e.Payload) != fmt.Sprintf(`{"text":"%d","run_id":"no"}`, n) || n == 3 &&
				string(e.Extra) != `"key":"an event's own"` {
				t.Fatalf("%v: %s", err, e.AppendLine(nil))
			}
			if n++; n == each {
				break
			}
		}
		s.Close()
	}
}

// counted counts the requests to a server, some of which break off before or behind the server, or are not known to it.
func counted(t *testing.T, to string, old bool, broken func(n int64) int) (string, *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.Transport, pass.ErrorHandler = transport, func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	n := new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			pass.ServeHTTP(w, r)
			return
		}
		if old && r.URL.Path == "/v1/agent/events" {
			http.NotFound(w, r)
			return
		}
		switch broken(n.Add(1)) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			pass.ServeHTTP(httptest.NewRecorder(), r) // it is stored, and nobody is told
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); transport.CloseIdleConnections() })
	return srv.URL, n
}

func TestPublisher(t *testing.T) {
	whole := func(int64) int { return 0 }
	t.Run("together", func(t *testing.T) {
		at, n := counted(t, realServer(t), false, whole)
		if publishMany(t, dial(t, at), 20, 10); n.Load() > 150 {
			t.Errorf("%d requests for 200 batches", n.Load())
		}
	})
	t.Run("a server that has no such request", func(t *testing.T) {
		at, _ := counted(t, realServer(t), true, whole)
		publishMany(t, dial(t, at), 5, 5)
	})
	t.Run("cuts", func(t *testing.T) { // each is stored once all the same
		at, _ := counted(t, realServer(t), false, func(n int64) int { return int(n % 4) })
		publishMany(t, dial(t, at), 8, 6)
	})
	t.Run("limits", func(t *testing.T) {
		publishMany(t, dial(t, realServer(t, func(c *edge.Config) { c.IngestLimit = edge.IngestLimit{Events: 30} })), 8, 6)
	})
}

// What is refused of one run is told to its caller alone.
func TestPublisherRefusals(t *testing.T) {
	c := dial(t, realServer(t))
	p := c.Publisher()
	if _, err := c.Run("ended").AppendLines(t.Context(), "",
		[]byte(`{"type":"run.lifecycle","payload":{"state":"done"}}`)); err != nil {
		t.Fatal(err)
	}
	good := `{"type":"progress","payload":{}}`
	var wg sync.WaitGroup
	for range 5 {
		for run, tt := range map[string]struct {
			lines string
			line  int
			err   error
		}{
			"good": {good + "\n" + good, 0, nil}, "ended": {good, 1, ErrEnded},
			"bad": {good + "\n\n" + `{"type":"nonsense"}`, 2, nil}, "garbage": {"nonsense", 1, nil}, "empty": {"{}", 1, nil},
		} {
			wg.Go(func() {
				r, err := p.AppendLines(t.Context(), run, []byte(tt.lines))
				if tt.line == 0 {
					if err != nil || r.Last != r.First+1 {
						t.Errorf("%s: %+v, %v", run, r, err)
					}
					return
				}
				e := new(Error)
				if !errors.As(err, &e) || e.Line != tt.line || e.Status/100 != 4 || tt.err != nil && !errors.Is(err, tt.err) {
					t.Errorf("%s: %+v, %v", run, r, err)
				}
			})
		}
	}
	wg.Wait()
	if _, err := p.AppendLines(t.Context(), "a.>", []byte(good)); !errors.Is(err, schema.ErrBadID) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.AppendLines(gone, "good", []byte(good)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
