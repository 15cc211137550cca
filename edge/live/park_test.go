package live_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

const watched = "/v1/agent/runs/run/stream"

var carriers = []string{"sse", "ws"}

// text is a delta of n bytes.
func (w *storer) text(n int) {
	w.add(schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat("x", n))})
}

func (w *storer) progress() {
	w.add(schema.Event{Type: schema.TypeProgress, Payload: []byte(`{"done":1}`)})
}

func (w *storer) state(s string) {
	w.add(schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"` + s + `","reason":null}`)})
}

// streamLogs returns the log lines of streams that have ended.
func streamLogs(h *edgetest.House) (list []streamLog) {
	h.T.Helper()
	for line := range strings.Lines(h.Logs.String()) {
		var l streamLog
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			h.T.Fatalf("%v: %s", err, line)
		}
		if l.Msg == "stream" {
			list = append(list, l)
		}
	}
	return list
}

type streamLog struct {
	Msg       string
	Level     string
	Status    int
	Seq       schema.Seq
	Events    int
	Bytes     int64
	Dropped   int
	Transport string
	Reason    string
}

// trail is what one watcher saw of a run.
type trail struct {
	full   bool
	events int
	last   schema.Seq
	gaps   int
	sum    uint32 // of the lines
	end    string // the last line
	fault  string
}

func (s *trail) see(line string) {
	if strings.Contains(line, `"type":"stream.gap"`) { // the numbers say it too
		return
	}
	first, last, err := span(line)
	switch {
	case err != nil:
		s.fault = fmt.Sprintf("%v: %s", err, line)
	case first <= s.last || last < first || s.full && first != last:
		s.fault = fmt.Sprintf("behind %d comes %d to %d", s.last, first, last)
	}
	s.gaps += int(first - s.last - 1)
	s.events, s.last, s.end = s.events+1, last, line
	s.sum = crc32.Update(s.sum, crc32.IEEETable, []byte(line))
}

// dropped is the number of events that the final lifecycle says were left out.
func (s *trail) dropped() int {
	var e struct {
		Payload struct {
			N int `json:"dropped_count"`
		}
	}
	_ = json.Unmarshal([]byte(s.end), &e) // a line that is none has no number
	return e.Payload.N
}

// check holds that a trail is the whole run behind after.
func (s *trail) check(last schema.Seq, sum uint32) error {
	switch {
	case s.fault != "":
		return fmt.Errorf("%s", s.fault)
	case s.last != last:
		return fmt.Errorf("ends at %d, want %d", s.last, last)
	case s.full && (s.gaps > 0 || s.sum != sum):
		return fmt.Errorf("%d are missing, or the lines are not those of the log", s.gaps)
	case s.gaps > s.dropped():
		return fmt.Errorf("%d are missing, and it was told of %d", s.gaps, s.dropped())
	}
	return nil
}

// sumAfter is that of all lines behind after.
func sumAfter(h *edgetest.House, after schema.Seq) (sum uint32) {
	h.T.Helper()
	for p, err := range h.Hub.Packs(h.T.Context(), schema.RunKey{Tenant: "acme", Run: "run"}, after, schema.MaxSeq) {
		if err != nil {
			h.T.Fatal(err)
		}
		for r, err := range p.Records(after) {
			if err != nil {
				h.T.Fatal(err)
			}
			sum = crc32.Update(sum, crc32.IEEETable, r.Line)
		}
	}
	return sum
}

// TestFanOut has 400 watchers of one run, who come at any time and stop reading now and then, over small
// buffers: each gets every number once, in order, to the end, and nothing is left of any of them.
func TestFanOut(t *testing.T) {
	const sse, all = 300, 400
	var sent atomic.Int64
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.SendBuffer = 4 << 10
		c.Hooks.EventsSent = func(_ string, n int, _ int64) { sent.Add(int64(n)) }
	})
	before := runtime.NumGoroutine()
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	trails := make([]trail, all)
	var there atomic.Int64
	var done sync.WaitGroup
	for i := range trails {
		done.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			carrier := carriers[min(i/sse, 1)]
			path, window := watched, []int{0, 8 << 10, 16 << 10}[i%3]
			if trails[i].full = i%2 == 0; trails[i].full {
				path += "?detail=full"
			}
			k, err := h.Tap(carrier, path, window)
			there.Add(1)
			if err != nil {
				t.Errorf("watcher %d: %v", i, err)
				return
			}
			defer k.Tcp.Close()
			for {
				line, err := k.Event()
				if err != nil {
					if !isComplete(k, err) {
						t.Errorf("watcher %d ends with %v, %d", i, err, k.Code)
					}
					return
				}
				if trails[i].see(line); rng.IntN(50) == 0 {
					time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // it is slow: that is the test
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for n := 0; n < 150 || there.Load() < all; n++ {
		if w.text(rng.IntN(1000)); n%7 == 0 {
			w.progress()
		}
		time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond) // so that some come in between
	}
	for range 20 {
		w.text(2000) // more than any buffer takes
	}
	w.state("done")
	done.Wait()
	received, sum := 0, sumAfter(h, 0)
	for i := range trails {
		received += trails[i].events
		if err := trails[i].check(w.head.Last, sum); err != nil {
			t.Errorf("watcher %d, full %v: %v", i, trails[i].full, err)
		}
	}
	h.Vacant()
	logged, events := streamLogs(h), 0
	for _, l := range logged {
		if events += l.Events; l.Reason != "ended" || l.Seq != w.head.Last || l.Bytes == 0 || l.Level != "INFO" {
			t.Errorf("log: %+v", l)
		}
	}
	if len(logged) != all || events != received || sent.Load() != int64(received) {
		t.Errorf("%d streams of %d were logged, with %d events; %d were counted, %d received", len(logged), all, events,
			sent.Load(), received)
	}
	edgetest.Eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// TestParkedHoldNoGoroutine has 500 idle watchers. They hold no goroutine, also not once each has got an
// event.
func TestParkedHoldNoGoroutine(t *testing.T) {
	h := edgetest.NewHouse(t)
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	taps := []*edgetest.Tap{h.MustTap("sse", watched, 0), h.MustTap("ws", watched+"?detail=full", 0)}
	settle(h, 2)
	before := runtime.NumGoroutine()
	for i := range 498 {
		taps = append(taps, h.MustTap(carriers[i%2], watched+[]string{"", "?detail=full"}[i/2%2], 0))
	}
	idle := func() {
		t.Helper()
		settle(h, len(taps))
		edgetest.Eventually(t, "no goroutine is held", func() bool { return runtime.NumGoroutine() < before+20 })
	}
	idle()
	for seq := range schema.Seq(3) {
		if seq > 0 {
			w.progress()
		}
		for _, k := range taps {
			readUntil(k, seq+1)
		}
		idle()
	}
	if logged := streamLogs(h); len(logged) > 0 {
		t.Errorf("open streams were logged as ended: %+v", logged[0])
	}
}

// TestParkedClientStopsReading: a parked client whose buffers fill up is on its own.
func TestParkedClientStopsReading(t *testing.T) {
	for _, carrier := range carriers {
		t.Run("full detail/"+carrier, func(t *testing.T) { t.Parallel(); isCut(t, carrier) })
		t.Run("default detail/"+carrier, func(t *testing.T) { t.Parallel(); isToldLess(t, carrier) })
	}
}

// isCut: one that wants all details is cut after the write time-out; the others are not kept waiting.
func isCut(t *testing.T, carrier string) {
	const limit = 2 * time.Second
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.SendBuffer, c.WriteTimeout = 8<<10, limit })
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	quick, slow := h.MustTap(carrier, watched+"?detail=full", 0), h.MustTap(carrier, watched+"?detail=full", 16<<10)
	settle(h, 2)
	var longest time.Duration
	give := func() {
		begun := time.Now()
		w.text(4000)
		readUntil(quick, w.head.Last)
		longest = max(longest, time.Since(begun))
	}
	for h.Server.Census().Parked == 2 {
		give()
	}
	for range 50 {
		give()
	}
	if longest >= limit*3/4 {
		t.Errorf("the other client waited %v", longest)
	}
	edgetest.Eventually(t, "the slow client is cut", func() bool { return len(streamLogs(h)) == 1 })
	if l := streamLogs(h)[0]; l.Reason != "slow client" || l.Level != "INFO" {
		t.Errorf("log: %+v", l)
	}
	var got trail
	for {
		line, err := slow.Event()
		if err != nil {
			if isComplete(slow, err) || got.events == 0 {
				t.Errorf("the slow client ends with %v behind %d events", err, got.events)
			}
			break
		}
		got.see(line)
	}
	if got.fault != "" || got.gaps > 0 {
		t.Errorf("the slow client got %+v", got)
	}
	settle(h, 1)
	w.state("done")
	if readUntil(quick, w.head.Last); !endsWhole(quick) {
		t.Error("the other client's end is not clean")
	}
	h.Vacant()
}

// endsWhole reads on to a clean end.
func endsWhole(k *edgetest.Tap) bool {
	line, err := k.Event()
	return line == "" && isComplete(k, err)
}

// isToldLess is R4 for parked streams: who stays seconds behind is told less, never a control
// event; who reads is told all.
func isToldLess(t *testing.T, carrier string) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.SendBuffer = 16 << 10 })
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	quick, slow := h.MustTap(carrier, watched, 0), h.MustTap(carrier, watched, 32<<10)
	settle(h, 2)
	var all trail
	read := make(chan error, 1)
	go func() {
		for {
			line, err := quick.Event()
			if err != nil {
				read <- err
				return
			}
			all.see(line)
		}
	}()
	var got trail
	controls := map[schema.Seq]bool{}
	for range 14 {
		for range 50 {
			w.add(schema.Event{Type: schema.TypeReasoningDelta,
				Payload: fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat("r", 2000))})
			w.text(2000)
			w.progress()
			controls[w.head.Last] = true
		}
		time.Sleep(700 * time.Millisecond) // the client is slow: that is the test
		for n := 0; n < 40<<10; n += len(got.end) {
			line, err := slow.Event()
			if err != nil {
				t.Fatal(err)
			}
			got.see(line)
			delete(controls, got.last)
		}
	}
	w.state("done")
	line, err := slow.Event()
	for ; err == nil; line, err = slow.Event() {
		got.see(line)
		delete(controls, got.last)
	}
	if cerr := got.check(w.head.Last, 0); cerr != nil || !isComplete(slow, err) || got.dropped() == 0 ||
		len(controls) > 0 {
		t.Errorf("%v, %v: told less by %d; %d control events did not come", cerr, err, got.dropped(), len(controls))
	}
	if err := <-read; !isComplete(quick, err) || all.check(w.head.Last, 0) != nil || all.gaps > 0 || all.dropped() > 0 {
		t.Errorf("the other client: %v, %+v", err, all)
	}
	h.Vacant()
	for _, l := range streamLogs(h) {
		if l.Dropped != 0 && l.Dropped != got.dropped() || l.Reason != "ended" {
			t.Errorf("log: %+v", l)
		}
	}
}
