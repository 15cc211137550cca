package e2e_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/schema"
)

// TestKillBetweenPacks kills the process while it stores a batch of many packs: what is left is a beginning of the
// batch, and the same request with its key stores the rest, once and in order.
func TestKillBetweenPacks(t *testing.T) {
	beside(t)
	n := kills(t, 5)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d kills", seed, n)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--partitions", "4")
	p.start()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	partial := 0
	const size = 600
	for k := 0; k < n || partial == 0 && k < 10*n; k++ {
		run := fmt.Sprintf("run_%d", k)
		var body strings.Builder
		for i := range size { // the lane changes with every event: as many packs
			fmt.Fprintf(&body, `{"type":"text.delta","child_id":"kid%d","payload":{"text":"%d"}}`+"\n", i%2, i)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url("/v1/agent/runs/"+run+"/events"),
				strings.NewReader(body.String()))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Idempotency-Key", "k")
			if resp, err := client.Do(r); err == nil { // else it was cut, which is what this is about
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-time.After(time.Duration(5+rnd.IntN(80)) * time.Millisecond)
		p.kill()
		<-answered
		p.start()
		left := beginning(t, p, run, -1)
		if left > 0 && left < size {
			partial++
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		answer, _, err := post(ctx, client, p.url("/v1/agent/runs/"+run+"/events"), "k", []byte(body.String()))
		cancel()
		if want := fmt.Sprintf(`{"first_seq":1,"last_seq":%d}`, size); err != nil || strings.TrimSpace(answer) != want {
			t.Fatalf("%s, of which %d were left: %s %v", run, left, answer, err)
		}
		beginning(t, p, run, size)
	}
	if partial == 0 {
		t.Error("no kill ever fell between two packs")
	}
	t.Logf("%d kills fell between packs", partial)
}

// beginning says how many events of the batch a run holds: 0, 1, 2 … in order. want is how many there must be.
func beginning(t *testing.T, p *proc, run string, want int) int {
	t.Helper()
	resp, err := http.Get(p.url("/v1/agent/runs/" + run))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound && want < 1 {
		return 0
	}
	lines := events(t, p.url("/v1/agent/runs/"+run))
	for i, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil || e.Seq != schema.Seq(i+1) || string(e.Payload) != fmt.Sprintf(`{"text":"%d"}`, i) {
			t.Fatalf("%s: event %d: %s %v", run, i+1, line, err)
		}
	}
	if want >= 0 && len(lines) != want {
		t.Fatalf("%s: %d events, want %d", run, len(lines), want)
	}
	return len(lines)
}
