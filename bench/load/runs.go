package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"agentstream/schema"
)

// ErrRefused reports that the server answered a request otherwise than the load needs.
var ErrRefused = errors.New("load: the server refused")

// beginners is how many requests that are not measured are open at a time.
const beginners = 32

// ledger is what was done to the runs of a load.
type ledger struct {
	names []string
	runs  []book
}

// book is one run: what was handed over, and what came of it.
type book struct {
	sent int64 // events; its writer's alone

	mu      sync.Mutex
	acked   int64
	refused []numberRange // never acknowledged; ascending
}

// newLedger names runs that no other load has.
func newLedger(n int) *ledger {
	id := strings.ToLower(strings.TrimPrefix(schema.NewIDs().Run(time.Now()), "run_"))
	l := &ledger{names: make([]string, n), runs: make([]book, n)}
	for i := range l.names {
		l.names[i] = fmt.Sprintf("load_%s_%d", id, i)
	}
	return l
}

// noteAnswer notes the answer to a unit.
func (b *book) noteAnswer(u unit, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.acked += int64(u.count)
		return
	}
	s := numberRange{u.first, u.first + int64(u.count)}
	if n := len(b.refused); n > 0 && b.refused[n-1].to == s.from {
		b.refused[n-1].to = s.to
		return
	}
	b.refused = append(b.refused, s)
}

func (l *ledger) total() (sent, acked int64) {
	for i := range l.runs {
		b := &l.runs[i]
		b.mu.Lock()
		sent, acked = sent+b.sent, acked+b.acked
		b.mu.Unlock()
	}
	return sent, acked
}

// createRuns makes the runs exist, so that they can be watched.
func (l *ledger) createRuns(ctx context.Context, srv *server) error {
	return l.each(ctx, func(ctx context.Context, run string) error {
		return srv.do(ctx, "PUT", pathOf(run), "")
	})
}

// endRuns reports that the runs are over. A deployment is not to be left with runs that seem to work.
func (l *ledger) endRuns(ctx context.Context, srv *server) error {
	const last = `{"type":"run.lifecycle","payload":{"state":"done","reason":null}}`
	return l.each(ctx, func(ctx context.Context, run string) error {
		return srv.do(ctx, "POST", pathOf(run)+"/events", last)
	})
}

func (l *ledger) each(ctx context.Context, do func(context.Context, string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(beginners)
	for _, run := range l.names {
		g.Go(func() error {
			if err := do(ctx, run); err != nil {
				return fmt.Errorf("run %s: %w", run, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// do sends a request that is not measured.
func (s *server) do(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url(path), strings.NewReader(body))
	if err != nil {
		return err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	if body != "" {
		req.Header.Set("Content-Type", ndjson)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return refusal(resp)
	}
	_, err = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	return err
}

const ndjson = "application/x-ndjson"
