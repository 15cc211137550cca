package rest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
)

// heapPeak calls during and returns by how many bytes the heap in use had grown at most meanwhile.
func heapPeak(during func()) int64 {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := before.HeapInuse
		for {
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
			}
		}
	}()
	during()
	close(stop)
	return int64(<-peak - before.HeapInuse)
}

// stall sends all of a body but its last byte, and returns the connection; the server may have refused it by then.
func stall(t *testing.T, h *edgetest.House, tenant, extra string, body []byte, size int) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	length := fmt.Sprintf("Content-Length: %d", size)
	if size < 0 {
		length = "Transfer-Encoding: chunked"
	}
	fmt.Fprintf(c, "POST /v1/agent/runs/run/events HTTP/1.1\r\nHost: x\r\n%s: %s\r\n%s%s\r\n\r\n",
		edgetest.TenantHeader, tenant, extra, length)
	if size < 0 {
		fmt.Fprintf(c, "%x\r\n", len(body)+1)
	}
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	_, _ = c.Write(body) // refused ones are not read to their end
	return c
}

// Connections that send nearly all of a large body and stall are held in a bounded part of the memory. What is over
// it is refused in the protocol's words; other tenants are served meanwhile.
func TestStalledBodies(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("chunked %v", chunked), func(t *testing.T) {
			h := edgetest.NewHouse(t)
			body := bytes.Repeat([]byte("x"), 8<<20-1)
			size := 8 << 20
			if chunked {
				size = -1
			}
			var mu sync.Mutex
			refused, odd := 0, ""
			grown := heapPeak(func() {
				var sent, answered sync.WaitGroup
				for range 60 {
					sent.Add(1)
					answered.Go(func() {
						c := stall(t, h, "greedy", "", body, size)
						sent.Done()
						_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
						resp, err := http.ReadResponse(bufio.NewReader(c), nil)
						if err != nil {
							return // it is held, or was cut while it sent
						}
						text, _ := io.ReadAll(resp.Body)
						mu.Lock()
						defer mu.Unlock()
						if refused++; resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" ||
							!strings.Contains(string(text), "RATE-LIMITED") {
							odd = fmt.Sprint(resp.StatusCode, resp.Header, string(text))
						}
					})
				}
				sent.Wait()
				if a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine, edgetest.TenantHeader,
					"modest"); a.Status != 200 {
					t.Errorf("another tenant: %d %s", a.Status, a.Body)
				}
				answered.Wait()
			})
			t.Logf("60 stalled bodies of 8 MiB: %d MiB more, %d refused", grown>>20, refused)
			if grown > 160<<20 {
				t.Errorf("%d MiB for 60 stalled bodies", grown>>20)
			}
			if odd != "" {
				t.Error(odd)
			}
			if refused == 0 {
				t.Error("none was told why")
			}
		})
	}
}

// A body under way takes about its size, whether its sender says how large it is or not.
func TestBodiesCostTheirSize(t *testing.T) {
	const count, size = 15, 8<<20 - 1
	var held atomic.Int64
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.BodyMemory, c.Hooks.BodyBytes = 1<<30, held.Store })
	for _, chunked := range []bool{false, true} {
		said := size + 1
		if chunked {
			said = -1
		}
		body := bytes.Repeat([]byte("x"), size)
		var open []net.Conn
		grown := heapPeak(func() {
			for range count {
				open = append(open, stall(t, h, "acme", "", body, said))
			}
			edgetest.Eventually(t, "all has arrived", func() bool { return held.Load() >= count*size })
		})
		t.Logf("chunked %v: %d bodies of %d KiB: %d KiB more, %d KiB reckoned", chunked, count, size>>10, grown>>10,
			held.Load()>>10)
		if most := int64(count) * size * 12 / 10; grown > most || held.Load() > most {
			t.Errorf("chunked %v: bodies of %d KiB take %d KiB, and are reckoned as %d KiB", chunked, count*size>>10,
				grown>>10, held.Load()>>10)
		}
		for _, c := range open {
			c.Close()
		}
		edgetest.Eventually(t, "all is given back", func() bool { return held.Load() == 0 })
	}
}

// Bombs in bodies that stall, and bombs by the hundred from one tenant, leave the other tenants their room.
func TestBombsLeaveRoom(t *testing.T) {
	var held atomic.Int64
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Hooks.BodyBytes = held.Store })
	bomb := edgetest.Gzip(t, strings.Repeat("\n", 8<<20-len(edgetest.GoodLine))+edgetest.GoodLine)
	var wg sync.WaitGroup
	grown := heapPeak(func() {
		for range 200 {
			wg.Go(func() {
				resp, err := h.Client.Do(h.Request("POST", "/v1/agent/runs/run/events", bomb, edgetest.TenantHeader,
					"greedy", "Content-Encoding", "gzip"))
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != 200 && resp.StatusCode != 429 {
					t.Errorf("%d", resp.StatusCode)
				}
			})
		}
		if a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.Gzip(t, edgetest.GoodLine), edgetest.TenantHeader,
			"modest", "Content-Encoding", "gzip"); a.Status != 200 {
			t.Errorf("another tenant: %d %s", a.Status, a.Body)
		}
		wg.Wait()
	})
	t.Logf("200 bombs: %d MiB more", grown>>20)
	if grown > 200<<20 {
		t.Errorf("%d MiB for 200 bombs", grown>>20)
	}
	if held.Load() != 0 {
		t.Errorf("%d bytes are still reckoned", held.Load())
	}
}
