package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// How R1 and R4 are measured: `make rates` prints the tables. Time is virtual, so
// that figures are of the server's decisions and not of the machine.

// rateMixes are runs of about twenty seconds.
var rateMixes = []struct {
	name  string
	speak func(say func(child int) *speaker)
}{
	{"one lane, 50 words a second", func(say func(int) *speaker) { say(0).talk(schema.TypeTextDelta, 1000, 50) }},
	{"one lane with fields, 20 a second", func(say func(int) *speaker) {
		s := say(0)
		for range 400 {
			s.words++
			s.say(schema.TypeTextDelta, fmt.Sprintf(`{"text":"w%d ","logprob":%.6f}`, s.words, -s.rng.Float64()))
			s.at += time.Duration(float64(50*time.Millisecond) * (0.5 + s.rng.Float64()))
		}
	}},
	{"thought and text alternating, 100 a second", func(say func(int) *speaker) {
		s := say(0)
		for range 1000 {
			s.talk(schema.TypeReasoningDelta, 1, 100)
			s.talk(schema.TypeTextDelta, 1, 100)
		}
	}},
	{"2 children at 10 words a second", together(2, 10)},
	{"2 children at 25", together(2, 25)},
	{"4 children at 10", together(4, 10)},
	{"4 children at 25", together(4, 25)},
	{"8 children at 10", together(8, 10)},
	{"8 children at 25", together(8, 25)},
	{"bursts of 8 children", func(say func(int) *speaker) {
		for i := range 8 {
			s := say(i + 1)
			for range 10 {
				s.at += time.Duration(s.rng.IntN(900)) * time.Millisecond
				s.talk(schema.TypeTextDelta, 30, 400)
				s.at += time.Second
			}
		}
	}},
}

func together(children, rate int) func(func(int) *speaker) {
	return func(say func(int) *speaker) {
		for i := range children {
			s := say(i + 1)
			s.at = time.Duration(i) * 7 * time.Millisecond
			s.talk(schema.TypeTextDelta, 20*rate, rate)
		}
	}
}

// playedBy returns a mix in the order of time, from the beginning to the end of its run.
func playedBy(speak func(func(int) *speaker), seed uint64) []timed {
	var all []timed
	root := speaker{rng: rand.New(rand.NewPCG(seed, 1)), out: &all}
	root.say(schema.TypeRunLifecycle, `{"state":"running"}`)
	speak(func(child int) *speaker {
		s := &speaker{rng: rand.New(rand.NewPCG(seed, uint64(child+2))), out: &all, at: 10 * time.Millisecond}
		if child > 0 {
			s.child = fmt.Sprint("child", child)
		}
		return s
	})
	slices.SortStableFunc(all, func(a, b timed) int { return int(a.at - b.at) })
	root.at = all[len(all)-1].at + 2*time.Second
	root.say(schema.TypeRunLifecycle, `{"state":"done"}`)
	return all
}

// got is what one connection brought.
type got struct {
	list  []seen
	bytes int64
	id    string // the client's cursor at the end
	gaps  []seen // stream.gap frames
}

// watchAll reads a stream to its end, as an EventSource would.
func watchAll(t *testing.T, body io.Reader, begun time.Time, g *got) {
	counted := &edgetest.CountingReader{R: body}
	rd := bufio.NewReader(counted)
	var data, event string
	for {
		line, err := rd.ReadString('\n')
		if err != nil {
			g.bytes = counted.N
			return
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "event":
			event = value
		case name == "data":
			data = value
		case name == "id":
			g.id = value
		case line == "\n" && data != "":
			e, err := schema.DecodeView([]byte(data))
			if err != nil {
				t.Errorf("%v: %s", err, data)
				return
			}
			s := seen{edgetest.Shown{Event: e, Line: data, FrameID: g.id}, time.Since(begun)}
			if data = ""; e.Type == "stream.gap" {
				if event != e.Type {
					t.Errorf("event %q: %s", event, s.Line)
				}
				g.gaps = append(g.gaps, s)
			} else {
				g.list = append(g.list, s)
			}
		}
	}
}

// lags returns how late each stored delta was, sorted, and how many never came.
func (g *got) lags(stored []time.Duration, run []timed) (late []time.Duration, missing int) {
	came := make([]bool, len(run)+1)
	for _, s := range g.list {
		for seq := s.First(); seq <= s.Seq; seq++ {
			came[seq] = true
			if delta(run[seq-1].e) {
				late = append(late, s.at-stored[seq])
			}
		}
	}
	for seq := 1; seq <= len(run); seq++ {
		if !came[seq] {
			missing++
		}
	}
	slices.Sort(late)
	return late, missing
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// play stores a run as time passes; the streams are opened behind its first event.
func play(t *testing.T, h *edgetest.House, run []timed, open ...func(begun time.Time) func()) (stored []time.Duration) {
	t.Helper()
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	begun := time.Now()
	stored = make([]time.Duration, len(run)+1)
	var ends []func()
	for i, item := range run {
		time.Sleep(item.at - time.Since(begun))
		w.add(item.e)
		stored[i+1] = time.Since(begun)
		if i == 0 {
			for _, o := range open {
				ends = append(ends, o(begun))
			}
		}
	}
	for _, wait := range ends {
		wait()
	}
	return stored
}

// opening returns a function that opens a stream and one that waits for its end.
func opening(t *testing.T, h *edgetest.House, client *http.Client, query string, g *got) func(time.Time) func() {
	return func(begun time.Time) func() {
		r := h.Watch(client, "/v1/agent/runs/run/stream?"+query)
		done := make(chan struct{})
		go func() { defer close(done); watchAll(t, r.B, begun, g) }()
		return func() { <-done }
	}
}

// TestRates is R1 and the delay, by mix: nothing waits for longer than 300 ms, bundles keep ten
// a second, and so does one lane whatever fields stand beside its text. Without bundles the rate of
// lanes that mingle is not more than they say, give or take what one window holds.
func TestRates(t *testing.T) {
	t.Logf("| %-42s | %-8s | %9s | %7s | %7s | %7s | %9s |", "mix", "view", "a second", "p50", "p99", "max", "bytes")
	for i, m := range rateMixes {
		inBubble(t, m.name, func(t *testing.T) {
			ln := edgetest.NewPipes()
			h := edgetest.NewHouseOn(t, ln, ln.Client())
			run := playedBy(m.speak, uint64(i+1))
			views := []string{"detail=full", "", "bundle=true"}
			all := make([]got, len(views))
			var open []func(time.Time) func()
			for j, q := range views {
				open = append(open, opening(t, h, h.Client, q, &all[j]))
			}
			stored := play(t, h, run, open...)
			raw := busiest(all[0].list)
			for j, name := range []string{"full", "default", "bundles"} {
				late, missing := all[j].lags(stored, run)
				most := busiest(all[j].list)
				p99 := quantile(late, 0.99)
				t.Logf("| %-42s | %-8s | %9d | %7v | %7v | %7v | %9d |", m.name, name, most,
					quantile(late, 0.5).Round(time.Millisecond), p99.Round(time.Millisecond),
					late[len(late)-1].Round(time.Millisecond), all[j].bytes)
				if missing > 0 {
					t.Errorf("%s: %s: %d events did not come", m.name, name, missing)
				}
				if p99 > 400*time.Millisecond {
					t.Errorf("%s: %s: text is %v late", m.name, name, p99)
				}
				if (name == "bundles" || name == "default" && strings.HasPrefix(m.name, "one lane")) && most > 10 {
					t.Errorf("%s: %s: %d delta events in a second", m.name, name, most)
				}
				if name == "default" && most > raw+raw/10+10 {
					t.Errorf("%s: %d delta events in a second, %d were said", m.name, most, raw)
				}
			}
		})
	}
}

// inBubble runs a subtest with a clock of its own.
func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// link is a client's side of a connection that brings so many bytes a second and may stand still for a
// while. Its buffers hold 1 MiB, and a writer that found them full is woken when a third is free, as
// Linux does.
type link struct {
	net.Conn
	rate   int // bytes a second
	from   time.Time
	pause  time.Duration // at from
	chunks chan []byte
	room   chan struct{}
	rest   []byte
	next   time.Time // when the next byte may come
}

func (l *link) fill() {
	defer close(l.chunks)
	for {
		b := make([]byte, 4<<10)
		n, err := l.Conn.Read(b)
		if n > 0 {
			l.chunks <- b[:n]
		}
		if len(l.chunks) == cap(l.chunks) {
			<-l.room
		}
		if err != nil {
			return
		}
	}
}

func (l *link) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		b, ok := <-l.chunks
		if !ok {
			return 0, io.EOF
		}
		if len(l.chunks) == cap(l.chunks)*2/3 {
			select {
			case l.room <- struct{}{}:
			default:
			}
		}
		if l.pause > 0 && time.Now().After(l.from) {
			time.Sleep(l.pause)
			l.pause = 0
		}
		now := time.Now()
		if l.next.Before(now) {
			l.next = now
		}
		l.next = l.next.Add(time.Duration(len(b)) * time.Second / time.Duration(l.rate))
		time.Sleep(l.next.Sub(now))
		l.rest = b
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// clientOver returns a client behind a link.
func clientOver(p *edgetest.Pipes, rate int, from, pause time.Duration) *http.Client {
	dial := p.Client().Transport.(*http.Transport).DialContext
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l := &link{Conn: c, rate: rate, from: time.Now().Add(from), pause: pause, chunks: make(chan []byte, 256),
			room: make(chan struct{})}
		go l.fill()
		return l, nil
	}}}
}

// rateLinks are what clients sit behind.
var rateLinks = []struct {
	name        string
	rate        int
	from, pause time.Duration
	short       []string // views that are looked at where the tables are not asked for
}{
	{"150 KiB/s", 150 << 10, 0, 0, []string{"", "bundle=true"}},
	{"400 KiB/s", 400 << 10, 0, 0, []string{""}},
	{"1 MiB/s", 1 << 20, 0, 0, nil},
	{"1 MiB/s, a pause of 8 s", 1 << 20, 10 * time.Second, 8 * time.Second, []string{""}},
}

// rateViews are the views of a link that are looked at.
func rateViews(short []string) []string {
	if os.Getenv("AGENTSTREAM_RATES") == "" {
		return short
	}
	return []string{"", "bundle=true"}
}

// lengthy is a run of about 7 MB that hardly folds: children in turns, thoughts in between.
func lengthy(d time.Duration) []timed {
	const bytes = 340
	return playedBy(func(say func(int) *speaker) {
		for i := range 8 {
			s := say(i + 1)
			words := 14000 / 8
			for n := range words {
				kind := schema.TypeTextDelta
				if (n+i)%3 == 0 {
					kind = schema.TypeReasoningDelta
				}
				s.words++
				s.say(kind, fmt.Sprintf(`{"text":"%d %s "}`, s.words, strings.Repeat("x", bytes)))
				s.at += time.Duration(float64(d) / float64(words) * (0.5 + s.rng.Float64()))
				if n%100 == 0 {
					s.say(schema.TypeProgress, fmt.Sprintf(`{"done":%d}`, n))
				}
			}
		}
	}, 7)
}

// comeBack reads a run as an EventSource does: again and again behind its cursor, until it is told that
// there is nothing more. It returns what all connections brought together.
func comeBack(t *testing.T, h *edgetest.House, client *http.Client, query, id string, begun time.Time,
	g *got) (connections int) {
	t.Helper()
	for range 5 {
		req, err := http.NewRequest("GET", h.URL+"/v1/agent/runs/run/stream?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			req.Header.Set("Last-Event-ID", id)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusNoContent {
			resp.Body.Close()
			return connections
		}
		connections++
		one := got{id: id}
		watchAll(t, resp.Body, begun, &one)
		resp.Body.Close()
		g.list = append(g.list, one.list...)
		g.gaps = append(g.gaps, one.gaps...)
		g.bytes += one.bytes
		id = one.id
	}
	t.Errorf("never told that the run is over")
	return connections
}

// dropped returns the dropped_count of the last lifecycle event.
func (g *got) dropped(t *testing.T) int {
	t.Helper()
	var p struct {
		N int `json:"dropped_count"`
	}
	if len(g.list) == 0 {
		return 0
	}
	if err := json.Unmarshal(g.list[len(g.list)-1].Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p.N
}

// TestR4NothingOfHistoryIsSpared: of a run that is over every link gets everything, at the first
// attempt, and is told nothing of a loss.
func TestR4NothingOfHistoryIsSpared(t *testing.T) {
	t.Logf("| %-24s | %-8s | %9s | %9s | %8s | %7s |", "finished run over", "view", "bytes", "events", "missing",
		"dropped")
	run := lengthy(60 * time.Second)
	for _, l := range rateLinks {
		for _, query := range rateViews(l.short) {
			inBubble(t, l.name+", "+viewName(query), func(t *testing.T) {
				ln := edgetest.NewPipes()
				h := edgetest.NewHouseOn(t, ln, ln.Client())
				w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
				for _, item := range run {
					w.add(item.e)
				}
				client := clientOver(ln, l.rate, l.from/5, l.pause)
				defer client.CloseIdleConnections()
				var g got
				connections := comeBack(t, h, client, query, "", time.Now(), &g)
				_, missing := g.lags(make([]time.Duration, len(run)+1), run)
				t.Logf("| %-24s | %-8s | %9d | %9d | %8d | %7d |", l.name, viewName(query), g.bytes, len(g.list),
					missing, g.dropped(t))
				if missing > 0 || g.dropped(t) > 0 || connections != 1 || len(g.gaps) > 0 {
					t.Errorf("%s %q: %d missing, %d dropped, %d connections", l.name, query, missing, g.dropped(t), connections)
				}
			})
		}
	}
}

func viewName(query string) string {
	if query == "" {
		return "default"
	}
	return "bundles"
}

// TestR4LiveOverALink: of what is live, a client is spared deltas when it is seconds behind and does not
// catch up. It is told which, its cursor stays where it had everything, and it gets the rest when it
// comes back with that, to the last event.
func TestR4LiveOverALink(t *testing.T) {
	t.Logf("| %-24s | %-8s | %9s | %7s | %7s | %7s | %8s | %5s | %11s |", "live run over", "view", "bytes", "p50",
		"p99", "max", "dropped", "gaps", "missing then")
	run := lengthy(24 * time.Second)
	for _, l := range rateLinks {
		for _, query := range rateViews(l.short) {
			inBubble(t, l.name+", "+viewName(query), func(t *testing.T) {
				ln := edgetest.NewPipes()
				h := edgetest.NewHouseOn(t, ln, ln.Client())
				client := clientOver(ln, l.rate, l.from, l.pause)
				defer client.CloseIdleConnections()
				var g got
				stored := play(t, h, run, opening(t, h, client, query, &g))
				late, missing := g.lags(stored, run)
				gaps, dropped, bytes := len(g.gaps), g.dropped(t), g.bytes
				if spared := g.spared(t); missing != dropped || spared != dropped {
					t.Errorf("%s %q: %d missing, the frames say %d, the last event %d", l.name, query, missing, spared, dropped)
				}
				if at := g.whole(); g.id != at.String() {
					t.Errorf("%s %q: cursor %s, everything is there up to %v", l.name, query, g.id, at)
				}
				connections := comeBack(t, h, client, query, g.id, time.Now(), &g)
				if dropped > 0 && connections == 0 {
					t.Errorf("%s %q: answered 204, and %d events are missing", l.name, query, missing)
				}
				_, after := g.lags(make([]time.Duration, len(run)+1), run)
				if after > 0 {
					t.Errorf("%s %q: %d events never came", l.name, query, after)
				}
				if l.rate > 1<<19 && dropped > 0 {
					t.Errorf("%s %q: %d events dropped, though the link could catch up", l.name, query, dropped)
				}
				t.Logf("| %-24s | %-8s | %9d | %7v | %7v | %7v | %8d | %5d | %11d |", l.name, viewName(query), bytes,
					quantile(late, 0.5).Round(time.Millisecond), quantile(late, 0.99).Round(time.Millisecond),
					quantile(late, 1).Round(time.Millisecond), dropped, gaps, after)
			})
		}
	}
}

// TestR4HistoryOfALiveRunIsWhole: what was stored when a client came, it gets all of, however slow it is;
// only of what follows it is spared something.
func TestR4HistoryOfALiveRunIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		h := edgetest.NewHouseOn(t, ln, ln.Client())
		run := lengthy(24 * time.Second)
		history := len(run) / 4
		w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
		for _, item := range run[:history] {
			w.add(item.e)
		}
		client := clientOver(ln, 250<<10, 0, 0)
		defer client.CloseIdleConnections()
		var g got
		begun := time.Now()
		wait := opening(t, h, client, "", &g)(begun)
		for _, item := range run[history:] {
			time.Sleep(item.at - run[history].at - time.Since(begun))
			w.add(item.e)
		}
		wait()
		if at := g.whole(); int(at) < history || g.dropped(t) == 0 || g.spared(t) != g.dropped(t) {
			t.Errorf("whole up to %d of %d, then %d dropped, %d said", at, history, g.dropped(t), g.spared(t))
		}
		comeBack(t, h, client, "", g.id, begun, &g)
		if _, missing := g.lags(make([]time.Duration, len(run)+1), run); missing > 0 {
			t.Errorf("%d never came", missing)
		}
	})
}

// spared sums what gap frames say.
func (g *got) spared(t *testing.T) (n int) {
	t.Helper()
	for _, s := range g.gaps {
		var p struct {
			First schema.Seq `json:"first_seq"`
			Last  schema.Seq `json:"last_seq"`
			N     int        `json:"dropped_count"`
		}
		if err := json.Unmarshal(s.Payload, &p); err != nil || s.Seq != p.First-1 || p.N < 1 || p.N > int(p.Last-p.First)+1 {
			t.Fatalf("%v: %s", err, s.Line)
		}
		n += p.N
	}
	return n
}

// whole returns the place up to which nothing is missing.
func (g *got) whole() (at schema.Seq) {
	for _, s := range g.list {
		if s.First() != at+1 {
			return at
		}
		at = s.Seq
	}
	return at
}
