package agentstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// Every scenario, from every cursor: the rest, byte for byte.
func TestWatchFromEveryCursor(t *testing.T) {
	for _, sc := range schematest.All() {
		all := lines(sc.Name)
		s := newScript(t, all)
		c := dial(t, s.URL)
		step := max(1, len(all)/50)
		for after := 0; after <= len(all); after += step {
			got, err := collect(t, c.Run("r1").Watch(t.Context(), Options{After: schema.Seq(after)}))
			if err != nil {
				t.Fatalf("%s from %d: %v", sc.Name, after, err)
			}
			same(t, got, all[after:])
		}
	}
}

// The connection is cut behind every single byte of the stream, in order and in disorder, and again
// at every byte of the second connection's beginning; what is given must be the whole, once.
func TestWatchSurvivesACutAtEveryByte(t *testing.T) {
	all := []string{line(0, 1), line(2, 3), final(0, 4, done)}
	for _, c := range []struct {
		name, eol string
		broken    bool
	}{{"broken", "\n", true}, {"ended in order", "\r\n", false}, {"broken at CR", "\r", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScript(t, all)
			cl := dial(t, s.URL)
			const hello = "retry: 1\n\n"
			whole := hello + sse(all, c.eol)
			for cut := range len(whole) + 1 {
				var cursors []string
				s.serve = func(w http.ResponseWriter, r *http.Request, rest []string, _ int) bool {
					cursors = append(cursors, r.Header.Get("Last-Event-ID"))
					body := hello + sse(rest, c.eol)
					if len(cursors) > 2 || len(cursors) == 2 && cut >= len(body) {
						io.WriteString(w, body)
						return true
					}
					io.WriteString(w, body[:cut]) // a second time at the same place
					w.(http.Flusher).Flush()
					if c.broken {
						panic(http.ErrAbortHandler)
					}
					return true
				}
				st := cl.Run("r1").Watch(t.Context(), Options{})
				got, err := collect(t, st)
				if err != nil {
					t.Fatalf("cut at %d of %d: %v, cursors %q", cut, len(whole), err, cursors)
				}
				same(t, got, all)
				if x := st.Stats(); x.Duplicates+x.Gaps+x.PassedOver > 0 {
					t.Fatalf("cut at %d: %+v", cut, x)
				}
			}
		})
	}
}

// A final lifecycle in the middle of a run that was followed up is not its end.
func TestWatchGoesOnAfterAFollowUp(t *testing.T) {
	all := []string{line(0, 1), final(0, 2, done), line(0, 3), final(0, 4, done), line(0, 5), final(0, 6, done)}
	s := newScript(t, all)
	s.serve = func(w http.ResponseWriter, _ *http.Request, rest []string, _ int) bool {
		for i, l := range rest { // the server ends every stream after the first end that it meets
			io.WriteString(w, sse(rest[i:i+1], "\n"))
			if strings.Contains(l, schema.TypeRunLifecycle) {
				break
			}
		}
		return true
	}
	got, err := collect(t, dial(t, s.URL).Run("r1").Watch(t.Context(), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, all)
	if cursors, _ := s.seen(); !slices.Equal(cursors, []string{"", "2", "4", "6"}) {
		t.Errorf("cursors %q: the end is to be confirmed", cursors)
	}
}

func TestT2WatchNeverHidesAGap(t *testing.T) {
	all := []string{line(0, 1), line(0, 2), line(0, 3), line(0, 4), line(0, 5), final(0, 6, done)}
	bad := `{"id":"evt_3","ts":"2026-01-01T00:00:00.000Z","type":"text.delta","run_id":"r1","child_id":null,"seq":3,"payload":[]}`
	for _, c := range []struct {
		name   string
		served string
		want   []string
		stats  Stats
	}{
		{"gap", sse(slices.Concat(all[:2], all[4:]), "\n"),
			slices.Concat(all[:2], []string{"! gap: seq 3 to 4 did not come (5 after 2)"}, all[4:]), Stats{Gaps: 1}},
		{"gap at the beginning", sse(all[1:], "\n"),
			slices.Concat([]string{"! gap: seq 1 to 1 did not come (2 after 0)"}, all[1:]), Stats{Gaps: 1}},
		{"doubled", sse(slices.Concat(all[:3], all[1:]), "\n"), all, Stats{Duplicates: 2}},
		{"disorder", sse(slices.Concat(all[:2], all[3:4], all[2:3], all[4:]), "\n"),
			slices.Concat(all[:2], []string{"! gap: seq 3 to 3 did not come (4 after 2)"}, all[3:]),
			Stats{Gaps: 1, Duplicates: 1}},
		{"overlap", sse([]string{line(1, 2), line(2, 5), all[5]}, "\n"),
			[]string{line(1, 2), "! overlap: seq 5 covers events from 2, and 2 was delivered already", line(2, 5),
				all[5]}, Stats{Gaps: 1}},
		{"spans", sse([]string{line(1, 2), line(3, 5), all[5]}, "\n"), []string{line(1, 2), line(3, 5), all[5]}, Stats{}},
		{"span behind a gap", sse([]string{line(1, 2), line(4, 5), all[5]}, "\n"),
			[]string{line(1, 2), "! gap: seq 3 to 3 did not come (5 after 2)", line(4, 5), all[5]}, Stats{Gaps: 1}},
		{"unreadable event", sse(all[:2], "\n") + "data: " + bad + "\nid: 3\n\n" + sse(all[3:], "\n"),
			slices.Concat(all[:2], []string{"! seq 3 to 3 cannot be read: "}, all[3:]), Stats{Gaps: 1}},
		{"frames with names", named(all[:2], "\n") + sse(all[2:4], "\r\n") + named(all[4:], "\r"), all, Stats{}},
		{"something newer", sse(all[:2], "\n") + "event: news\ndata: hello\n\n" + sse(all[2:], "\n"), all,
			Stats{PassedOver: 1}},
		{"cursor moved over what is hidden", sse(all[:2], "\n") + "id: 4\n\n" + sse(all[4:], "\n"),
			slices.Concat(all[:2], all[4:]), Stats{}},
		{"cursor moved, and told again", sse(all[:2], "\n") + "id: 4\n\n" + sse([]string{line(3, 5), all[5]}, "\n"),
			slices.Concat(all[:2], []string{line(3, 5), all[5]}), Stats{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, all)
			s.serve = func(w http.ResponseWriter, _ *http.Request, _ []string, n int) bool {
				if n == 0 {
					io.WriteString(w, c.served)
				}
				return n == 0
			}
			st := dial(t, s.URL).Run("r1").Watch(t.Context(), Options{})
			got, err := collect(t, st)
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range got {
				if i < len(c.want) && strings.HasPrefix(g, "! ") && strings.HasPrefix(g, c.want[i]) {
					got[i] = c.want[i]
				}
			}
			same(t, got, c.want)
			if c.stats.Connections = 1; st.Stats() != c.stats {
				t.Errorf("stats %+v, want %+v", st.Stats(), c.stats)
			}
		})
	}
}

// With Refetch a gap is asked about once; what the log has comes, what it lost is told.
func TestWatchRefetchesBeforeAGap(t *testing.T) {
	all := []string{line(0, 1), line(0, 2), line(0, 3), line(0, 4), final(0, 5, done)}
	thin := slices.Concat(all[:1], all[2:])
	for _, lost := range []bool{false, true} {
		s := newScript(t, all)
		s.serve = func(w http.ResponseWriter, r *http.Request, rest []string, n int) bool {
			switch {
			case n == 0:
				io.WriteString(w, sse(thin, "\n"))
			case lost && len(rest) == 4:
				io.WriteString(w, sse(rest[1:], "\n"))
			default:
				return false
			}
			return true
		}
		st := dial(t, s.URL).Run("r1").Watch(t.Context(), Options{Refetch: true})
		got, err := collect(t, st)
		if err != nil {
			t.Fatal(err)
		}
		want := all
		if lost {
			want = slices.Concat(all[:1], []string{"! gap: seq 2 to 2 did not come (3 after 1)"}, all[2:])
		}
		same(t, got, want)
		if cursors, _ := s.seen(); cursors[1] != "1" {
			t.Errorf("lost=%v: cursors %q", lost, cursors)
		}
	}
}

// A cursor over hidden events is kept for the next connection.
func TestWatchResumesBehindAMovedCursor(t *testing.T) {
	all := []string{line(0, 1), line(0, 2), line(0, 3), final(0, 4, done)}
	s := newScript(t, all)
	s.serve = func(w http.ResponseWriter, _ *http.Request, _ []string, n int) bool {
		if n == 0 {
			io.WriteString(w, "retry: 1\n\n"+sse(all[:1], "\n")+"id: 3\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		return false
	}
	got, err := collect(t, dial(t, s.URL).Run("r1").Watch(t.Context(), Options{}))
	if cursors, _ := s.seen(); err != nil || !slices.Equal(cursors, []string{"", "3", "4"}) {
		t.Errorf("%v, cursors %q", err, cursors)
	}
	same(t, got, slices.Concat(all[:1], all[3:]))
}

func TestWatchAsksForItsOptions(t *testing.T) {
	all := []string{line(0, 1), line(0, 2), final(0, 3, done)}
	s := newScript(t, all)
	s.serve = func(w http.ResponseWriter, _ *http.Request, rest []string, n int) bool {
		io.WriteString(w, "retry: 1\n\n"+sse(rest[:1], "\n"))
		return true
	}
	o := Options{Detail: DetailFull, Children: []string{"c1", RootLane}, Nested: true,
		Types: []string{"tool.*", "text.delta"}, Snapshot: true, Speed: 2.5}
	if _, err := collect(t, dial(t, s.URL).Run("r1").Watch(t.Context(), o)); err != nil {
		t.Fatal(err)
	}
	_, queries := s.seen()
	const want = "child=c1%2C-&detail=full&nested=true&snapshot=true&speed=2.5&types=tool.%2A%2Ctext.delta"
	if queries[0] != want || queries[1] != strings.Replace(want, "&snapshot=true", "", 1) {
		t.Errorf("queries %q", queries)
	}
	for _, o := range []Options{{After: -1}, {After: schema.MaxSeq + 1}, {After: 1, Snapshot: true},
		{Children: []string{"a,b"}}} {
		st := dial(t, s.URL).Run("r1").Watch(t.Context(), o)
		if _, err := st.Next(t.Context()); err == nil || err == io.EOF {
			t.Errorf("%+v: %v", o, err)
		}
		st.Close()
	}
	if _, err := dial(t, s.URL).Run("a/b").Watch(t.Context(), Options{}).Next(t.Context()); !errors.Is(err,
		schema.ErrBadID) {
		t.Errorf("bad run: %v", err)
	}
}

// TestBundlesComeApart: folded detail asks for bundles, and gives the deltas in them one by one; the
// cursor moves with the last.
func TestBundlesComeApart(t *testing.T) {
	const bundle = `{"id":"evt_5","ts":"2026-01-01T00:00:00.000Z","type":"delta.bundle","run_id":"r1","child_id":null,"seq":5,"first_seq":2,"payload":{"deltas":[` +
		`{"type":"text.delta","child_id":"c1","turn_id":"t","x_own":[1e2],"payload":{"text":"a\ud83d"}},` +
		`{"type":"tool.output.delta","child_id":null,"payload":{"call_id":"c","text":"b"}}]}}`
	all := []string{line(0, 1), bundle, final(0, 6, done)}
	s := newScript(t, all)
	st := dial(t, s.URL).Run("r1").Watch(t.Context(), Options{})
	defer st.Close()
	var got []string
	var cursors []schema.Seq
	for e, err := range st.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got, cursors = append(got, string(st.Line())), append(cursors, st.Cursor())
		if line := string(e.AppendLine(nil)); line != got[len(got)-1] {
			t.Errorf("event %s, line %s", line, got[len(got)-1])
		}
	}
	const head = `{"id":"evt_5","ts":"2026-01-01T00:00:00.000Z","type":`
	same(t, got, []string{all[0],
		head + `"text.delta","run_id":"r1","child_id":"c1","seq":5,"first_seq":2,"turn_id":"t","x_own":[1e2],"payload":{"text":"a\ud83d"}}`,
		head + `"tool.output.delta","run_id":"r1","child_id":null,"seq":5,"first_seq":2,"payload":{"call_id":"c","text":"b"}}`,
		all[2]})
	if !slices.Equal(cursors, []schema.Seq{1, 1, 5, 6}) || st.Stats().Duplicates+st.Stats().PassedOver > 0 {
		t.Errorf("cursors %v, %+v", cursors, st.Stats())
	}
	if _, queries := s.seen(); queries[0] != "bundle=true" {
		t.Errorf("query %q", queries[0])
	}
}

// TestWhatIsSparedIsFetched: stream.gap is no event and doubles nothing; the gap is in the numbers, and
// Refetch fills it.
func TestWhatIsSparedIsFetched(t *testing.T) {
	const gap = `{"id":"gap_2_3","ts":"2026-01-01T00:00:00.000Z","type":"stream.gap","run_id":"r1","child_id":null,"seq":1,"payload":{"first_seq":2,"last_seq":3,"dropped_count":2,"dropped_code":"KAI-STREAM-BUF-0001"}}`
	all := []string{line(0, 1), line(0, 2), line(0, 3), line(0, 4), final(0, 5, done)}
	for _, refetch := range []bool{false, true} {
		s := newScript(t, all)
		s.serve = func(w http.ResponseWriter, _ *http.Request, _ []string, n int) bool {
			if n > 0 {
				return false
			}
			io.WriteString(w, sse(all[:1], "\n")+"event: stream.gap\ndata: "+gap+"\n\ndata: "+all[3]+"\n\ndata: "+all[4]+"\n\n")
			return true
		}
		st := dial(t, s.URL).Run("r1").Watch(t.Context(), Options{Refetch: refetch})
		got, err := collect(t, st)
		if err != nil {
			t.Fatal(err)
		}
		want := all
		if !refetch {
			want = []string{all[0], "! gap: seq 2 to 3 did not come (4 after 1)", all[3], all[4]}
		}
		same(t, got, want)
		if x := st.Stats(); x.Duplicates+x.PassedOver > 0 {
			t.Errorf("%+v", x)
		}
	}
}

func TestWatchAnswersThatDecide(t *testing.T) {
	all := []string{line(0, 1), final(0, 2, done)}
	for _, c := range []struct {
		name  string
		first func(w http.ResponseWriter)
		want  error // nil: goes on
	}{
		{"not found", func(w http.ResponseWriter) { refuse(w, 404, "NOT-FOUND", "") }, ErrNotFound},
		{"expired", func(w http.ResponseWriter) { refuse(w, 410, schema.CodeCursorExpired, "") }, ErrExpired},
		{"unauthorized", func(w http.ResponseWriter) { refuse(w, 401, "UNAUTHORIZED", "") }, ErrUnauthorized},
		{"forbidden", func(w http.ResponseWriter) { refuse(w, 403, "FORBIDDEN", "") }, ErrForbidden},
		{"ahead", func(w http.ResponseWriter) { refuse(w, 409, "CURSOR-AHEAD", "") }, ErrCursorAhead},
		{"busy", func(w http.ResponseWriter) { refuse(w, 503, "BUSY", "full") }, nil},
		{"too many", func(w http.ResponseWriter) { refuse(w, 429, "BUSY", "full") }, nil},
		{"bad gateway", func(w http.ResponseWriter) { w.WriteHeader(502) }, nil},
		{"reset", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, nil},
		{"last word", func(w http.ResponseWriter) {
			io.WriteString(w, `data: {"error":{"code":"KAI-STREAM-CONN-0002","message":"gone"}}`+"\n\n")
		}, ErrExpired},
		{"last word with a status", func(w http.ResponseWriter) {
			io.WriteString(w, `data: {"error":{"code":"X","message":"gone","status":404}}`+"\n\n")
		}, ErrNotFound},
		{"last word that passes", func(w http.ResponseWriter) {
			io.WriteString(w, "event: stream.error\n"+`data: {"error":{"code":"INTERNAL","message":"oh"}}`+"\n\n")
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, all)
			var retried atomic.Int32
			s.serve = func(w http.ResponseWriter, _ *http.Request, _ []string, n int) bool {
				if n == 0 {
					c.first(w)
				}
				return n == 0
			}
			cl := dial(t, s.URL, func(cfg *Config) { cfg.Hooks.Retrying = func(error, time.Duration) { retried.Add(1) } })
			st := cl.Run("r1").Watch(t.Context(), Options{})
			got, err := collect(t, st)
			if c.want != nil {
				if !errors.Is(err, c.want) || len(got) != 0 {
					t.Fatalf("error %v, got %q", err, got)
				}
				if _, again := st.Next(t.Context()); again != err {
					t.Errorf("the call after the end gives %v", again)
				}
				return
			}
			if err != nil || retried.Load() == 0 {
				t.Fatalf("%v, %d retries", err, retried.Load())
			}
			same(t, got, all)
		})
	}
	t.Run("a web page", func(t *testing.T) {
		c := client(t, Config{}, func(*http.Request) (*http.Response, error) {
			return answer(200, "<html>", http.Header{"Content-Type": {"text/html\x1b[2J"}}), nil
		})
		_, err := collect(t, c.Run("r1").Watch(t.Context(), Options{}))
		if err == nil || !strings.Contains(err.Error(), "is this an agentstream server?") ||
			strings.Contains(err.Error(), "\x1b") {
			t.Errorf("error %q", err)
		}
	})
}

// What the server dropped for a client that lags is said at the end.
func TestWatchCountsWhatWasDropped(t *testing.T) {
	all := []string{line(0, 1), final(0, 2,
		`{"state":"aborted","reason":null,"dropped_count":7,"dropped_code":"KAI-STREAM-BUF-0001"}`)}
	st := dial(t, newScript(t, all).URL).Run("r1").Watch(t.Context(), Options{})
	if _, err := collect(t, st); err != nil {
		t.Fatal(err)
	}
	if got := st.Stats(); got.Dropped != 7 || got.DroppedCode != schema.CodeDropped {
		t.Errorf("%+v", got)
	}
}

// The limit of one call cuts the connection and loses nothing.
func TestWatchNextWithALimit(t *testing.T) {
	all := []string{line(0, 1), line(0, 2), final(0, 3, done)}
	s := newScript(t, all)
	release := make(chan struct{})
	s.serve = func(w http.ResponseWriter, r *http.Request, rest []string, n int) bool {
		if n > 0 {
			return false
		}
		io.WriteString(w, "retry: 1\n\n"+sse(rest[:1], "\n")+sse(rest[1:2], "\n")[:20])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(release)
		return true
	}
	st := dial(t, s.URL).Run("r1").Watch(t.Context(), Options{})
	defer st.Close()
	if _, err := st.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := st.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || st.Cursor() != 1 {
		t.Fatalf("%v at %d", err, st.Cursor())
	}
	<-release // the server sees it
	got, err := collect(t, st)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, all[1:])
}

func TestWatchCloseFromElsewhere(t *testing.T) {
	s := newScript(t, []string{line(0, 1), line(0, 2)})
	s.serve = func(w http.ResponseWriter, r *http.Request, rest []string, n int) bool {
		io.WriteString(w, sse(rest[:1], "\n"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	c := dial(t, s.URL)
	for _, end := range []string{"close", "context"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		st := c.Run("r1").Watch(ctx, Options{})
		if _, err := st.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := st.Next(t.Context())
			ended <- err
		}()
		want, why := ErrClosed, errors.New("enough")
		if end == "close" {
			st.Close()
			st.Close()
		} else {
			cancel(why)
			want = why
		}
		if err := <-ended; err != want {
			t.Errorf("%s: %v", end, err)
		}
		if _, err := st.Next(t.Context()); err != want {
			t.Errorf("%s, afterwards: %v", end, err)
		}
		cancel(nil)
	}
}
