package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/schema"
)

// lineStream is one process that publishes to several runs over one stream after another. Each line has a key.
type lineStream struct {
	base string
	runs []string
	rnd  *rand.Rand

	mu      sync.Mutex
	sent    map[string]int        // lines of a run that were made
	open    []keyedLine           // that are not answered, in their order
	acked   map[string]schema.Seq // by key
	streams atomic.Int64
}

type keyedLine struct{ run, key, text string }

// stream sends what is not answered, and more, until ctx ends or the stream does, or it cuts itself off.
func (s *lineStream) stream(ctx context.Context, t *testing.T, more bool) {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/v1/agent/events", r)
	if err != nil {
		t.Error(err)
		return
	}
	s.mu.Lock()
	lines := append([]keyedLine(nil), s.open...)
	s.mu.Unlock()
	numbered := append([]keyedLine(nil), lines...) // by line
	var mu sync.Mutex
	read := make(chan struct{})
	// Lines are sent before the answer begins: net/http notices that its connection is gone when it has something to send.
	go func() {
		defer close(read)
		defer r.Close()
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return
		}
		s.streams.Add(1)
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			mu.Lock()
			s.answer(t, sc.Bytes(), numbered)
			mu.Unlock()
		}
	}()
	defer func() { cut(); w.Close(); <-read }()
	for _, l := range lines {
		if _, err := io.WriteString(w, l.text); err != nil {
			return
		}
	}
	for more && ctx.Err() == nil && s.rnd.IntN(400) > 0 {
		s.mu.Lock()
		run := s.runs[s.rnd.IntN(len(s.runs))]
		n := s.sent[run]
		s.sent[run]++
		l := keyedLine{run: run, key: fmt.Sprintf("%s-%d", run, n)}
		l.text = fmt.Sprintf(`{"run_id":%q,"key":%q,"type":"text.delta","payload":{"text":"%d"}}`+"\n", run, l.key, n)
		s.open = append(s.open, l)
		behind := len(s.open)
		s.mu.Unlock()
		mu.Lock()
		numbered = append(numbered, l)
		mu.Unlock()
		if _, err := io.WriteString(w, l.text); err != nil {
			return
		}
		if behind > 50 {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-read:
				return
			}
		}
	}
	if !more { // everything is to be answered
		w.Close()
		<-read
	}
}

// answer takes a receipt.
func (s *lineStream) answer(t *testing.T, text []byte, lines []keyedLine) {
	var r struct {
		Line  int
		Run   string     `json:"run_id"`
		First schema.Seq `json:"first_seq"`
		Last  schema.Seq `json:"last_seq"`
		Error *struct {
			Code  string
			Retry int `json:"retry_after"`
		}
	}
	if json.Unmarshal(text, &r) != nil || r.Line == 0 {
		return // a sign of life, or a line that was cut
	}
	if r.Error != nil {
		if r.Error.Retry == 0 {
			t.Errorf("%s", text)
		}
		return // it is sent again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, seq := r.Line-1, r.Last; seq >= r.First; at-- { // the newest is named, those before it are of the same run
		if at < 0 {
			t.Errorf("%s is for more than was sent", text)
			return
		}
		if lines[at].run != r.Run {
			continue
		}
		key := lines[at].key
		if was, twice := s.acked[key]; twice && was != seq {
			t.Errorf("%s had seq %d and has %d", key, was, seq)
		}
		s.acked[key] = seq
		seq--
		s.open = slices.DeleteFunc(s.open, func(l keyedLine) bool { return l.key == key })
	}
}

// TestKillPublishing kills the server under streams, and cuts streams in their middle: what has a receipt is at its
// place, and with keys every line is stored once and in order.
func TestKillPublishing(t *testing.T) {
	beside(t)
	n := kills(t, 3)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d kills", seed, n)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--partitions", "4")
	p.start()
	base := "http://" + p.addr
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all []*lineStream
	var wg sync.WaitGroup
	var streams atomic.Int64
	for i := range 3 {
		s := &lineStream{base: base, rnd: rand.New(rand.NewPCG(seed, uint64(i+1))), sent: map[string]int{},
			acked: map[string]schema.Seq{}}
		for k := range 4 {
			s.runs = append(s.runs, fmt.Sprintf("run_%d_%d", i, k))
		}
		all = append(all, s)
		wg.Go(func() {
			for ctx.Err() == nil {
				s.stream(ctx, t, true)
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			streams.Add(s.streams.Load())
		})
	}
	for range n {
		<-time.After(time.Duration(100+rnd.IntN(500)) * time.Millisecond)
		p.kill()
		p.start()
	}
	<-time.After(200 * time.Millisecond)
	stop()
	wg.Wait()
	acked, stored := 0, 0
	for _, s := range all {
		for i := 0; len(s.open) > 0; i++ {
			if s.stream(t.Context(), t, false); i == 20 {
				t.Fatalf("%d lines are never answered", len(s.open))
			}
		}
		for _, run := range s.runs {
			if s.sent[run] == 0 {
				continue
			}
			lines := events(t, base+"/v1/agent/runs/"+run)
			for i, line := range lines {
				e, err := schema.DecodeLine([]byte(line))
				if err != nil || string(e.Payload) != fmt.Sprintf(`{"text":"%d"}`, i) ||
					s.acked[fmt.Sprintf("%s-%d", run, i)] != e.Seq {
					t.Fatalf("%s: place %d, receipt for %d: %v: %s", run, i+1, s.acked[fmt.Sprintf("%s-%d", run, i)], err, line)
				}
			}
			if len(lines) != s.sent[run] {
				t.Errorf("%s: %d stored of %d", run, len(lines), s.sent[run])
			}
			stored += len(lines)
		}
		acked += len(s.acked)
	}
	t.Logf("%d kills, %d streams, %d lines acknowledged, %d stored: 0 lost, 0 doubled, in order", n, streams.Load(),
		acked, stored)
}
