package rest_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// Bodies and events lie in space that is used again. Requests of all sizes and forms at once, good ones and
// refused ones in turns, must never see each other's: each text ends up in its own run, once and in order.
func TestBodiesAreNotMixed(t *testing.T) {
	h := edgetest.NewHouse(t)
	const writers, posts = 12, 60
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range posts {
				postTexts(h, w, i)
			}
		})
	}
	wg.Wait()
	for w := range writers {
		var got, want []string
		for i := range posts {
			for e := range i%5 + 1 {
				want = append(want, text(w, i, e))
			}
		}
		for p, err := range h.Hub.Packs(t.Context(), schema.RunKey{Tenant: "acme", Run: fmt.Sprint("w", w)}, 0,
			schema.MaxSeq) {
			if err != nil {
				t.Fatal(err)
			}
			for r, err := range p.Records(0) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(r.Payload()))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("run w%d holds %d texts that are not the %d it was sent", w, len(got), len(want))
		}
	}
}

// text is a payload that nobody else writes, of a length that changes from post to post.
func text(w, i, e int) string {
	return fmt.Sprintf(`{"text":"%d/%d/%d %s"}`, w, i, e, strings.Repeat(string(rune('a'+w)), 1+(w*i*37)%3000))
}

// postTexts posts one body that is taken, in one of three forms, and one that is refused at its last line.
func postTexts(h *edgetest.House, w, i int) {
	var lines []string
	for e := range i%5 + 1 {
		lines = append(lines, `{"type":"text.delta","payload":`+text(w, i, e)+`}`)
	}
	body := strings.Join(lines, "\n")
	if i%4 == 1 {
		body = "[" + strings.Join(lines, ",") + "]"
	}
	path := fmt.Sprint("/v1/agent/runs/w", w, "/events")
	for _, c := range []struct {
		body   string
		status int
	}{{body, 200}, {strings.Join(lines, "\n") + "\n{\"type\":\"nothing.known\"}", 422}} {
		r := h.Request("POST", path, c.body)
		if i%3 == 0 {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(c.body)), -1 // chunked
		}
		resp, err := h.Client.Do(r)
		if err != nil {
			h.T.Error(err)
			return
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode/100 != c.status/100 {
			h.T.Errorf("%s, post %d: %v %d %s", path, i, err, resp.StatusCode, answer)
		}
	}
}

// A body of any length around the bounds of what is read at once is read whole, told or not told.
func TestBodiesOfEveryLength(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.MaxBodyBytes = 300 << 10 })
	const frame = len(`{"type":"text.delta","payload":{"text":""}}`)
	seq := 0
	for _, size := range []int{frame, 510, 511, 512, 513, 1023, 1024, 4095, 4096, 4097, 65535, 65536, 65537, 131072,
		262144, 300 << 10, 300<<10 + 1} {
		body := `{"type":"text.delta","payload":{"text":"` + strings.Repeat("x", size-frame) + `"}}`
		for _, chunked := range []bool{false, true} {
			r := h.Request("POST", "/v1/agent/runs/run/events", body)
			if chunked {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
			}
			resp, err := h.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			want := 200
			if seq++; size > 300<<10 {
				want = 413
				seq--
			}
			if resp.StatusCode != want || h.Last("run") != schema.Seq(seq) {
				t.Errorf("%d bytes, chunked %v: status %d, seq %d", size, chunked, resp.StatusCode, h.Last("run"))
			}
		}
	}
}

// Requests that are sent without waiting for answers are answered in their order, each for its own body.
func TestPipelinedPosts(t *testing.T) {
	h := edgetest.NewHouse(t)
	conn, err := net.Dial("tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const posts = 200
	var all strings.Builder
	for i := range posts {
		body := `{"type":"text.delta","payload":` + text(1, i, 0) + `}`
		end := "\r\n"
		if i == posts-1 {
			end = "\r\nConnection: close\r\n"
		}
		fmt.Fprintf(&all, "POST /v1/agent/runs/run/events HTTP/1.1\r\nHost: x\r\nContent-Length: %d%s\r\n%s", len(body),
			end, body)
	}
	sent := make(chan error, 1)
	go func() { _, err := conn.Write([]byte(all.String())); sent <- err }()
	answers, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	at := 0
	for i := 1; i <= posts; i++ {
		mark := fmt.Sprintf(`{"first_seq":%d,"last_seq":%d}`, i, i)
		n := strings.Index(string(answers[at:]), mark)
		if n < 0 {
			t.Fatalf("answer %d is missing", i)
		}
		at += n + len(mark)
	}
	if h.Last("run") != posts {
		t.Errorf("%d events", h.Last("run"))
	}
}
