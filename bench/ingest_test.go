package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"

	"agentstream/schema"
)

// batchEvents is how many events one POST brings.
const batchEvents = 100

// ingest: producers post batches to the edge, one connection and one run each.
func ingest(h *house, n sizes, connections int) *comparison {
	body := ndjson(batchEvents)
	perRun := n.batches / connections * batchEvents
	return &comparison{
		title: fmt.Sprintf("ingest over HTTP, %d connection(s): %d POSTs of %d events each", connections,
			n.batches/connections, batchEvents),
		units: []string{"ev/s"}, server: h.nats.pid,
		own: []variant{{"agentstream: POST /v1/agent/runs/{run}/events", "ours",
			func(ctx context.Context, w *stopwatch) ([]float64, error) {
				return h.post(ctx, w, h.runs(connections), n.batches/connections, body)
			}}},
		bare: []variant{
			{"bare: Publish with compare-and-set, 100 events per message", "bare_packs",
				func(ctx context.Context, w *stopwatch) ([]float64, error) {
					return h.compareAndSet(ctx, w, h.bareRuns(connections), perRun, batchEvents)
				}},
			{"bare: the same, one event per message", "bare_sync", func(ctx context.Context, w *stopwatch) ([]float64, error) {
				return h.compareAndSet(ctx, w, h.bareRuns(connections), max(perRun/10, 1), 1)
			}},
		},
	}
}

func (h *house) post(ctx context.Context, w *stopwatch, runs []schema.RunKey, batches int, body []byte) ([]float64,
	error) {
	g, gctx := errgroup.WithContext(ctx)
	w.start()
	for _, key := range runs {
		g.Go(func() error {
			for i := range batches {
				if err := h.postOne(gctx, key.Run, body, i*batchEvents+1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	w.stop(len(runs) * batches * batchEvents)
	return w.rate(), h.hasStored(ctx, runs, batches*batchEvents)
}

func (h *house) postOne(ctx context.Context, run string, body []byte, first int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/agent/runs/"+run+"/events",
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		First int `json:"first_seq"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode != http.StatusOK || answer.First != first {
		return fmt.Errorf("POST to %s: status %d, %s, where first_seq %d is due (%v)", run, resp.StatusCode, text, first, err)
	}
	return nil
}
