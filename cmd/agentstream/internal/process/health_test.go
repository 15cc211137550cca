package process

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
)

// Anybody may ask for health. Whoever asks again and again, over more connections than there may be, or over HTTP/2,
// costs a few runs of the checks and few connections, and a probe is answered meanwhile.
func TestHealthIsBounded(t *testing.T) {
	m, log := NewMetrics(), slog.New(slog.DiscardHandler)
	o, err := OpenOperators(t.Context(), "off", AdminFlags{HealthListen: "127.0.0.1:0"}, m, log)
	if err != nil {
		t.Fatal(err)
	}
	addr := o.health.Addr().String()
	var runs atomic.Int64
	check := edge.Check{Name: "slow", Run: func(context.Context) error { runs.Add(1); time.Sleep(50 * time.Millisecond); return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunStages(ctx, o.Parts(&Admin{Metrics: m, Log: log, Checks: []edge.Check{check}})) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	var open []net.Conn
	var reading sync.WaitGroup
	var closed atomic.Int64
	defer reading.Wait()
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for i := range 3 * maxProbes {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		if i%2 == 0 {
			_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") // it may be closed
		}
		reading.Go(func() { _, _ = io.Copy(io.Discard, c); closed.Add(1) })
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	began, asked := time.Now(), 0
	var asking sync.WaitGroup
	var refused atomic.Int64
	for range 8 {
		asking.Go(func() {
			for range 20 {
				resp, err := client.Get("http://" + addr + "/readyz")
				if err != nil || resp.StatusCode != http.StatusOK {
					refused.Add(1)
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if !strings.Contains(string(body), `"slow":"ok"`) {
					t.Errorf("%s", body)
				}
			}
		})
		asked += 20
	}
	asking.Wait()
	took := time.Since(began)
	if n := refused.Load(); n > 0 {
		t.Errorf("%d of %d probes were refused", n, asked)
	}
	if most := int64(took/(500*time.Millisecond)) + 2; runs.Load() > most {
		t.Errorf("the checks ran %d times in %v", runs.Load(), took)
	}
	for end := time.Now().Add(time.Minute); closed.Load() < 2*maxProbes; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d connections were closed", closed.Load(), len(open))
		}
	}
}
