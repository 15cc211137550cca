package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// Bounds of a page of the bare direct get: those of fanout/natsjs.
const (
	pageMessages = 200
	pageBytes    = 1 << 20
)

// replay: one client reads a stored run that lies among others of its stream.
func replay(h *house, n sizes, perPack int) *comparison {
	var key schema.RunKey // stored by the first run
	job := func(read func(context.Context, schema.RunKey) (int, error)) func(context.Context, *stopwatch) ([]float64, error) {
		return func(ctx context.Context, w *stopwatch) ([]float64, error) {
			if key.Run == "" {
				k, err := h.storeAmongOthers(ctx, n, perPack)
				if err != nil {
					return nil, err
				}
				key = k
			}
			w.start()
			for range n.replays {
				got, err := read(ctx, key)
				if err != nil {
					return nil, err
				}
				if got != n.replay {
					return nil, fmt.Errorf("%d of %d events", got, n.replay)
				}
			}
			w.stop(n.replays * n.replay)
			return w.rate(), nil
		}
	}
	layout := "one event per message"
	if perPack > 1 {
		layout = fmt.Sprintf("packs of %d", perPack)
	}
	return &comparison{
		title: fmt.Sprintf("replay of %s events, stored as %s, among %d other runs of the stream", thousands(n.replay),
			layout, n.neighbours),
		units: []string{"ev/s"}, server: h.nats.pid,
		own: []variant{
			{"agentstream: SSE, one client", "ours", job(h.readSSE)},
			{"agentstream: Hub.Packs (no HTTP)", "hub", job(h.readHub)},
		},
		bare: []variant{
			{"bare: batched direct get, same pages", "bare_direct", job(h.readDirect)},
			{"bare: ordered consumer", "bare_ordered", job(h.readOrdered)},
		},
	}
}

// storeAmongOthers stores a finished run, its packs in turns with those of neighbours in the same
// partition.
func (h *house) storeAmongOthers(ctx context.Context, n sizes, perPack int) (schema.RunKey, error) {
	runs := h.inOnePartition(n.neighbours + 1)
	packs := make([][]*nats.Msg, len(runs))
	for i, key := range runs {
		packs[i] = h.messages(packsOf(key, n.replay, perPack, true))
	}
	js, err := jetstream.New(h.bare, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		return schema.RunKey{}, err
	}
	defer js.CleanupPublisher()
	for i := range packs[0] {
		for _, run := range packs {
			if _, err := js.PublishMsgAsync(run[i], jetstream.WithStallWait(limit)); err != nil {
				return schema.RunKey{}, err
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return schema.RunKey{}, context.Cause(ctx)
	}
	return runs[0], h.hasStored(ctx, runs, n.replay)
}

func (h *house) inOnePartition(n int) []schema.RunKey {
	prefix, list := h.name("replay_"), make([]schema.RunKey, 0, n)
	for i := 0; len(list) < n; i++ {
		key := schema.RunKey{Tenant: tenant, Run: prefix + "_" + strconv.Itoa(i)}
		if schema.Partition(key.Run, h.partitions) == 0 {
			list = append(list, key)
		}
	}
	return list
}

// readSSE reads the stream to its clean end and checks every id.
func (h *house) readSSE(ctx context.Context, key schema.RunKey) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/v1/agent/runs/"+key.Run+"/stream?detail=full", nil)
	if err != nil {
		return 0, err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d", resp.StatusCode)
	}
	ids, buf := idCounter{}, make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		if ids.add(buf[:n]); ids.err != nil {
			return 0, ids.err
		}
		if err == io.EOF {
			return ids.last, nil
		}
		if err != nil {
			return ids.last, err
		}
	}
}

// idCounter finds the id lines of a stream, which must count up from 1. It looks at nothing else, so
// that the client costs little beside what is measured.
type idCounter struct {
	last int
	rest []byte // the beginning of a line that is not complete
	err  error
}

func (c *idCounter) add(b []byte) {
	c.rest = append(c.rest, b...)
	b = c.rest
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			break
		}
		if num, ok := bytes.CutPrefix(b[:end], []byte("id: ")); ok {
			if id, err := strconv.Atoi(string(num)); err != nil || id != c.last+1 {
				c.err = fmt.Errorf("id %s behind %d", num, c.last)
				return
			}
			c.last++
		}
		b = b[end+1:]
	}
	c.rest = append(c.rest[:0], b...)
}

func (h *house) readHub(ctx context.Context, key schema.RunKey) (n int, err error) {
	for p, err := range h.hub.Packs(ctx, key, 0, 1<<40) {
		if err != nil {
			return n, err
		}
		n += p.Count
	}
	return n, nil
}

// readDirect is batched direct get as the protocol has it: pages until nothing is pending, each ended
// by the server's marker.
func (h *house) readDirect(ctx context.Context, key schema.RunKey) (n int, err error) {
	filter, next := schema.RunFilter(key, h.partitions), uint64(1)
	for more := true; more; {
		body, err := json.Marshal(natskit.BatchRequest{Seq: next, NextBy: filter, Batch: pageMessages, MaxBytes: pageBytes})
		if err != nil {
			return n, err
		}
		inbox := h.bare.NewInbox()
		msgs := make(chan *nats.Msg, pageMessages+1) // SubscribeSync's of 65,536 would cost more than the page
		sub, err := h.bare.ChanSubscribe(inbox, msgs)
		if err != nil {
			return n, err
		}
		if err := h.bare.PublishRequest("$JS.API.DIRECT.GET."+h.stream(key), inbox, body); err != nil {
			return n, err
		}
		for {
			var m *nats.Msg
			select {
			case m = <-msgs:
			case <-ctx.Done():
				return n, context.Cause(ctx)
			}
			if status := m.Header.Get("Status"); status == "204" {
				more = m.Header.Get("Nats-Num-Pending") != "0"
				break
			} else if status != "" {
				return n, fmt.Errorf("status %s", status)
			}
			if next, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err != nil {
				return n, err
			}
			next++
			n += bytes.Count(m.Data, []byte{'\n'})
		}
		if err := sub.Unsubscribe(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// readOrdered is what a user of nats.go would write. It is told how many events there are, because a
// consumer does not say when it has caught up with a filter.
func (h *house) readOrdered(ctx context.Context, key schema.RunKey) (n int, err error) {
	head, err := h.log.Head(ctx, key, "")
	if err != nil {
		return 0, err
	}
	cons, err := h.js.OrderedConsumer(ctx, h.stream(key), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{schema.RunFilter(key, h.partitions)}})
	if err != nil {
		return 0, err
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return 0, err
	}
	defer it.Stop()
	for n < int(head.Last) {
		m, err := it.Next()
		if err != nil {
			return n, err
		}
		n += bytes.Count(m.Data(), []byte{'\n'})
	}
	return n, nil
}
