package live_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// said at a time of the run.
type timed struct {
	at time.Duration
	e  schema.Event
}

// speaker writes one lane of a mix.
type speaker struct {
	rng   *rand.Rand
	child string
	at    time.Duration
	out   *[]timed
	words int
}

func (s *speaker) say(typ, payload string) {
	*s.out = append(*s.out, timed{s.at, schema.Event{Type: typ, ChildID: s.child, Payload: []byte(payload)}})
}

// talk says n deltas at about so many a second.
func (s *speaker) talk(kind string, n, rate int) {
	for range n {
		s.words++
		s.say(kind, fmt.Sprintf(`{"text":"%s%d "}`, s.child, s.words))
		s.at += time.Duration(float64(time.Second) / float64(rate) * (0.5 + s.rng.Float64()))
	}
}

// call uses a tool that takes a while and streams some of its output.
func (s *speaker) call(took time.Duration, chunks int) {
	id := fmt.Sprintf("call_%s_%d", s.child, s.words)
	s.say(schema.TypeToolStart, fmt.Sprintf(`{"call_id":%q,"tool":"web.search","input":{}}`, id))
	for range chunks {
		s.at += took / time.Duration(chunks+1)
		s.words++
		s.say(schema.TypeToolOutputDelta, fmt.Sprintf(`{"call_id":%q,"text":"line %d\n"}`, id, s.words))
	}
	s.at += took / time.Duration(chunks+1)
	s.say(schema.TypeToolEnd, fmt.Sprintf(`{"call_id":%q,"ok":true}`, id))
}

// mixes are runs with eight children that differ in how their lanes mingle.
var mixes = []struct {
	name  string
	speak func(i int, s *speaker)
}{
	{"one after another", func(i int, s *speaker) {
		s.at = time.Duration(i) * 1500 * time.Millisecond
		s.talk(schema.TypeReasoningDelta, 25, 60)
		s.call(300*time.Millisecond, 0)
		s.talk(schema.TypeTextDelta, 30, 60)
	}},
	{"all at once", func(i int, s *speaker) {
		s.at = time.Duration(i) * 10 * time.Millisecond
		s.talk(schema.TypeTextDelta, 240, 40)
	}},
	{"thinking and speaking", func(i int, s *speaker) {
		s.at = time.Duration(i) * 700 * time.Millisecond
		for range 4 {
			s.talk(schema.TypeReasoningDelta, 20, 50)
			s.talk(schema.TypeTextDelta, 20, 50)
		}
	}},
	{"tools", func(i int, s *speaker) {
		s.at = time.Duration(i) * 330 * time.Millisecond
		for range 2 {
			s.talk(schema.TypeTextDelta, 40, 30)
			s.call(1800*time.Millisecond, 6)
		}
		s.talk(schema.TypeTextDelta, 20, 30)
	}},
	{"bursts", func(i int, s *speaker) {
		for range 6 {
			s.at += time.Duration(s.rng.IntN(900)) * time.Millisecond
			s.talk(schema.TypeTextDelta, 30, 400)
			s.at += time.Second
		}
	}},
}

// perform returns a mix in the order of time: a beginning, eight children, an end.
func perform(speak func(int, *speaker), seed uint64) []timed {
	var all []timed
	root := speaker{rng: rand.New(rand.NewPCG(seed, 1)), out: &all}
	root.say(schema.TypeRunLifecycle, `{"state":"running"}`)
	for i := range 8 {
		root.say(schema.TypeChildSpawn, fmt.Sprintf(`{"child_id":"child%d"}`, i))
		speak(i, &speaker{rng: rand.New(rand.NewPCG(seed, uint64(i+2))), child: fmt.Sprintf("child%d", i), out: &all})
	}
	slices.SortStableFunc(all, func(a, b timed) int { return int(a.at - b.at) })
	root.at = all[len(all)-1].at + 2*time.Second
	root.say(schema.TypeRunLifecycle, `{"state":"done"}`)
	return all
}

// seen is a frame and when it came.
type seen struct {
	edgetest.Shown
	at time.Duration
}

func delta(e schema.Event) bool {
	info, err := schema.Lookup(e.Type)
	return e.Type == "delta.bundle" || err == nil && info.Delta
}

// busiest returns the most delta events in any one second.
func busiest(list []seen) int {
	var at []time.Duration
	most := 0
	for _, s := range list {
		if !delta(s.Event) {
			continue
		}
		at = append(at, s.at)
		for at[len(at)-1]-at[0] >= time.Second {
			at = at[1:]
		}
		most = max(most, len(at))
	}
	return most
}

// TestT4TenDeltaEventsASecond: mixes with eight children, watched in three ways at the same time. With
// bundles no second has more than ten delta events in any of them. Without, the same holds where lanes
// take turns; where they speak at the same time order beats the rate, and the test says by how much.
// Texts are exact everywhere, and control events come in the moment in which they are stored.
func TestT4TenDeltaEventsASecond(t *testing.T) {
	for _, m := range mixes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := edgetest.NewPipes()
				h := edgetest.NewHouseOn(t, ln, ln.Client())
				run := perform(m.speak, 1)
				got := watchMix(t, h, run, "detail=full", "", "bundle=true")
				raw := got["detail=full"]
				var rawSaid []schema.Event
				stored := map[schema.Seq]time.Duration{}
				for _, s := range raw {
					rawSaid = append(rawSaid, s.Event)
					stored[s.Seq] = s.at
				}
				for _, query := range []string{"", "bundle=true"} {
					var list []edgetest.Shown
					for _, s := range got[query] {
						list = append(list, s.Shown)
						if !delta(s.Event) && s.at != stored[s.Seq] {
							t.Errorf("%s: %s %d came %v after it was stored", query, s.Type, s.Seq, s.at-stored[s.Seq])
						}
					}
					tiles(t, list, 0)
					equalTexts(t, query, saidBy(t, list), said(t, rawSaid))
				}
				bundled, plain := busiest(got["bundle=true"]), busiest(got[""])
				t.Logf("%-22s %4d events, raw %3d a second at most; default %3d events, %3d a second; bundled %3d events, %3d a second",
					m.name, len(raw), busiest(raw), len(got[""]), plain, len(got["bundle=true"]), bundled)
				if bundled > 10 {
					t.Errorf("%d delta events in one second", bundled)
				}
				if m.name == "one after another" && plain > 10 {
					t.Errorf("%d delta events in one second, though lanes take turns", plain)
				}
			})
		})
	}
	t.Run("1000 deltas of one lane", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := edgetest.NewPipes()
			h := edgetest.NewHouseOn(t, ln, ln.Client())
			var all []timed
			s := speaker{rng: rand.New(rand.NewPCG(1, 1)), out: &all}
			s.talk(schema.TypeTextDelta, 1000, 100)
			s.say(schema.TypeRunLifecycle, `{"state":"done"}`)
			got := watchMix(t, h, all, "")[""]
			if n := busiest(got); n > 10 || len(got) < 50 {
				t.Errorf("%d in a second, %d events", n, len(got))
			}
			t.Logf("1000 deltas in 10 s: %d events, %d in the busiest second", len(got), busiest(got))
		})
	})
}

// watchMix stores a run as time passes and gives what each query's client saw.
func watchMix(t *testing.T, h *edgetest.House, run []timed, queries ...string) map[string][]seen {
	t.Helper()
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	writer := newWriter(t, h, key)
	begun := time.Now()
	var mu sync.Mutex
	got := map[string][]seen{}
	var watching sync.WaitGroup
	for i, item := range run {
		time.Sleep(item.at - time.Since(begun))
		writer.add(item.e)
		if i > 0 {
			continue
		}
		for _, q := range queries {
			r := h.Watch(h.Client, "/v1/agent/runs/run/stream?"+q)
			watching.Go(func() {
				f := edgetest.FrameReader{T: t, R: bufio.NewReader(r.B)}
				for s, ok := f.Next(); ok; s, ok = f.Next() {
					mu.Lock()
					got[q] = append(got[q], seen{s, time.Since(begun)})
					mu.Unlock()
				}
			})
		}
	}
	watching.Wait()
	for q, list := range got {
		if !strings.Contains(list[len(list)-1].Line, `"state":"done"`) {
			t.Fatalf("%q ends with %s", q, list[len(list)-1].Line)
		}
	}
	return got
}

// storer stores events one by one, as a log does.
type storer struct {
	t    *testing.T
	h    *edgetest.House
	key  schema.RunKey
	head schema.Head
}

func newWriter(t *testing.T, h *edgetest.House, key schema.RunKey) *storer {
	return &storer{t: t, h: h, key: key, head: schema.Head{Day: "20260102"}}
}

func (w *storer) add(e schema.Event) {
	w.t.Helper()
	seq := w.head.Last + 1
	e.RunID, e.Seq = w.key.Run, seq
	e.ID, e.TS = fmt.Sprintf("evt_%024d", seq), time.Now().UTC().Format(schema.TimeLayout)
	if err := w.head.Advance(e.Type, e.ChildID, e.ID, e.Payload); err != nil {
		w.t.Fatal(err)
	}
	p := schema.Pack{Key: w.key, Child: e.ChildID, First: seq, Count: 1, Writer: "w", Head: w.head,
		Body: append(e.AppendLine(nil), '\n')}
	w.h.Store([]schema.Pack{p})
}
