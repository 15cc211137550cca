package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// rollingCounts is what all watchers of a replacement have met.
type rollingCounts struct {
	delivered, opened, refused, lost, doubled, wrong atomic.Int64
	awayNanos                                        atomic.Int64 // the longest between two streams of a watcher
	first                                            atomic.Value // what was wrong first, a string
}

func (c *rollingCounts) note(n *atomic.Int64, by int64, format string, a ...any) {
	n.Add(by)
	c.first.CompareAndSwap(nil, fmt.Sprintf(format, a...))
}

// rollingWatcher watches one run as an EventSource does: when the stream ends, it comes again after the time that the
// server has named, with the last number that it has.
type rollingWatcher struct {
	run   string
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	seen  *rollingCounts
	last  atomic.Int64
	retry time.Duration
	ended time.Time // of the last stream
}

// follow watches until ctx ends.
func (w *rollingWatcher) follow(ctx context.Context, opened func()) {
	w.retry = time.Second
	for ctx.Err() == nil {
		err := w.stream(ctx, opened)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRollingRefused) {
			w.seen.note(&w.seen.refused, 1, "%s after %d: %v", w.run, w.last.Load(), err)
		}
		w.ended = time.Now()
		select {
		case <-time.After(w.retry):
		case <-ctx.Done():
		}
	}
}

// errRollingRefused is an answer after which an EventSource does not come again.
var errRollingRefused = errors.New("the stream is refused")

// stream opens a stream and reads it to its end.
func (w *rollingWatcher) stream(ctx context.Context, opened func()) error {
	conn, err := w.dial(ctx, "tcp", "")
	if err != nil {
		return err // which the balancer has counted
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintf(conn, "GET /v1/agent/runs/%s/stream?detail=full HTTP/1.1\r\nHost: edges\r\nAuthorization: Bearer %s\r\n"+
		"Accept: text/event-stream\r\nLast-Event-ID: %d\r\n\r\n", w.run, edgeToken, w.last.Load())
	in := bufio.NewReaderSize(conn, 1024)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errRollingRefused, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("%w: %s: %s", errRollingRefused, resp.Status, text)
	}
	w.seen.opened.Add(1)
	if !w.ended.IsZero() {
		keepLongest(&w.seen.awayNanos, time.Since(w.ended))
	}
	opened()
	return w.read(bufio.NewReaderSize(resp.Body, 1024))
}

// keepLongest keeps the longer of two times, in nanoseconds.
func keepLongest(kept *atomic.Int64, d time.Duration) {
	for {
		was := kept.Load()
		if int64(d) <= was || kept.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

// read takes events off a stream.
func (w *rollingWatcher) read(in *bufio.Reader) error {
	var id int64
	var data, name string
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err // an event without its blank line is none
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && data != "":
			w.take(id, name, data)
			id, data, name = 0, "", ""
		case field == "id":
			id, _ = strconv.ParseInt(value, 10, 64) // 0 is wrong, and is said
		case field == "data":
			data = value
		case field == "event":
			name = value
		case field == "retry":
			if ms, err := strconv.Atoi(value); err == nil {
				w.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// take compares an event with the one that is due. Its text is its number.
func (w *rollingWatcher) take(id int64, name, data string) {
	last := w.last.Load()
	switch {
	case id == 0 || !strings.Contains(data, fmt.Sprintf(`"text":"%d"`, id)):
		w.seen.note(&w.seen.wrong, 1, "%s after %d: %q %d %s", w.run, last, name, id, data)
		return
	case id <= last:
		w.seen.note(&w.seen.doubled, 1, "%s: %d after %d", w.run, id, last)
		return
	case id > last+1:
		w.seen.note(&w.seen.lost, id-last-1, "%s: %d after %d", w.run, id, last)
	}
	w.seen.delivered.Add(1)
	w.last.Store(id)
}
