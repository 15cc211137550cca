package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// SIGTERM under an open stream: the process ends with status 0 within its limit, the stream is cut
// and not ended, no terminal event is invented, and the client goes on where it was after a restart.
func TestTermination(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	run := p.url("/v1/agent/runs/run_term")
	client := &http.Client{Timeout: 10 * time.Second}
	publish := func(key, text string) {
		t.Helper()
		body := []byte(`{"type":"text.delta","payload":{"text":"` + text + `"}}`)
		if _, _, err := post(t.Context(), client, run+"/events", key, body); err != nil {
			t.Fatal(err)
		}
	}
	publish("a", "one")
	publish("b", "two")

	ids, err := follow(t.Context(), run, "", func(id string) {
		if id == "2" {
			go func() { p.stopped <- p.stop() }()
		}
	})
	if len(ids) != 2 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("ids %v, then %v: the stream must be cut, not ended", ids, err)
	}
	if code := <-p.stopped; code != 0 {
		t.Fatalf("exit status %d", code)
	}
	p.start()
	publish("c", "three")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ids, _ = follow(ctx, run, "2", func(string) { cancel() })
	if len(ids) != 1 || ids[0] != "3" {
		t.Fatalf("resume behind 2 gave %v", ids)
	}
	if lines := events(t, run); len(lines) != 3 || strings.Contains(strings.Join(lines, ""), "run.lifecycle") {
		t.Fatalf("the log holds %v", lines)
	}
}

// follow reads ids until the stream ends, and says how it ended.
func follow(ctx context.Context, run, after string, each func(id string)) (ids []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, run+"/stream?detail=full", nil)
	if err != nil {
		return nil, err
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return ids, err
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			ids = append(ids, strings.TrimSpace(id))
			each(ids[len(ids)-1])
		}
	}
}
