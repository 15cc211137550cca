package live_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// storeTurn stores a turn of so many texts; without an end it goes on.
func storeTurn(h *edgetest.House, run, id string, texts int, end bool) {
	h.T.Helper()
	h.Must(run, schema.TypeTurnStart, `{"turn_id":"`+id+`"}`)
	for range texts {
		h.Must(run, schema.TypeTextDelta, `{"text":"abc"}`)
	}
	if end {
		h.Must(run, schema.TypeTurnEnd, `{"turn_id":"`+id+`","stop_reason":"end_turn"}`)
	}
}

// openWatchersOfTurn opens the sample's stream of a turn in each way that there is.
func openWatchersOfTurn(h *edgetest.House, t *testing.T, run, turn string, await bool) (all []watcher) {
	t.Helper()
	query, body := "?only=type&turn="+turn, fmt.Sprintf(`{"run":%q,"turn":%q,"only":"type","await":%v}`, run, turn, await)
	if await {
		query += "&await"
	}
	for name, f := range map[string]*edgetest.Feed{"GET": h.Feed(t, "GET", "/sample/"+run+"/feed"+query, ""),
		"POST": h.Feed(t, "POST", "/sample/look", body)} {
		all = append(all, watcher{name, func() (string, error) { s, err := f.Next(); return s.Data, err }})
	}
	s := h.MustTap("ws", "/sample/"+run+"/feed"+query, 0, "Sec-WebSocket-Protocol", "sample")
	all = append(all, watcher{"WebSocket", func() (string, error) {
		line, err := s.Answer()
		if errors.Is(err, edgetest.ErrClosed) && s.Code == 1000 {
			err = io.EOF
		}
		return line, err
	}})
	return append(all, watcher{"gRPC", watchRPC(h, t, body)})
}

// expectEnd fails the test unless the stream ends cleanly.
func (w watcher) expectEnd(t *testing.T) {
	t.Helper()
	if got, err := w.next(); err != io.EOF { // it is not wrapped
		t.Errorf("%s: %q %v instead of the end", w.name, got, err)
	}
}

// frameOf is a record of a turn as the sample shows it.
func frameOf(turn, nth int, typ string) string {
	return fmt.Sprintf(`{"turn":%d,"nth":%d,"type":%q}`, turn, nth, typ)
}

// TestStreamOfATurn: a stream is of one turn, over every transport and on every node: it begins where the turn does,
// has numbers of its own, ends with it, whether the turn is over, goes on, or is still to come.
func TestStreamOfATurn(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	other := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.Hub = h.Hub })
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	storeTurn(h, "run", "t1", 2, true)
	h.Must("run", schema.TypeProgress, `{"done":1}`)
	storeTurn(h, "run", "t2", 1, false)
	var later []watcher
	for _, at := range []*edgetest.House{h, other} {
		for _, w := range openWatchersOfTurn(at, t, "run", "t1", false) {
			w.wants(t, `{"after":1}`, frameOf(1, 1, "turn.start"), frameOf(1, 2, "text.delta"),
				frameOf(1, 3, "text.delta"), frameOf(1, 4, "turn.end"))
			w.expectEnd(t)
		}
		for _, w := range openWatchersOfTurn(at, t, "run", "t2", true) {
			w.wants(t, `{"after":6}`, frameOf(2, 1, "turn.start"), frameOf(2, 2, "text.delta"))
			later = append(later, w)
		}
		for _, w := range openWatchersOfTurn(at, t, "run", "t3", true) {
			w.wants(t, `{"after":8}`)
			w.name += " of t3"
			later = append(later, w)
		}
		for _, w := range openWatchersOfTurn(at, t, "new", "t3", true) {
			w.wants(t, `{"after":0}`)
			w.name += " of t3 of another run"
			later = append(later, w)
		}
	}
	h.Must("run", schema.TypeTurnEnd, `{"turn_id":"t2","stop_reason":"end_turn"}`)
	h.Must("run", schema.TypeProgress, `{"done":1}`)
	storeTurn(h, "run", "t3", 0, true)
	h.Must("new", schema.TypeRunLifecycle, `{"state":"running"}`)
	storeTurn(h, "new", "t3", 0, true)
	for _, w := range later {
		switch _, of, _ := strings.Cut(w.name, " of "); of {
		case "":
			w.wants(t, frameOf(2, 3, "turn.end"))
		case "t3":
			w.wants(t, frameOf(3, 1, "turn.start"), frameOf(3, 2, "turn.end"))
		default:
			w.wants(t, frameOf(1, 1, "turn.start"), frameOf(1, 2, "turn.end"))
		}
		w.expectEnd(t)
	}
	for query, want := range map[string]int{"?turn=t9": 404, "?turn=T1": 404, "?turn=t1&newest": 200} {
		if a := h.Do("GET", "/sample/run/feed"+query, ""); a.Status != want {
			t.Errorf("%s: %d %s", query, a.Status, a.Body)
		}
	}
}

// TestResumeOfATurn goes on behind each frame of a turn, on another node: exactly the rest comes, with the same
// numbers. A place outside of the turn is refused, and behind its end it is complete.
func TestResumeOfATurn(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	other := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.Hub = h.Hub })
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	storeTurn(h, "run", "t1", 1, true)
	h.Must("run", schema.TypeProgress, `{"done":1}`)
	storeTurn(h, "run", "t2", 3, true)
	h.Must("run", schema.TypeProgress, `{"done":1}`)
	ids := func(query string) (list []edgetest.Sampled) {
		got, err := restOfFeed(h.Feed(t, "GET", "/sample/run/feed"+query, ""))
		if err != io.EOF { // it is not wrapped
			t.Fatal(err)
		}
		for _, s := range got {
			if s.Id != "" {
				list = append(list, s)
			}
		}
		return list
	}
	all := ids("?turn=t2")
	if len(all) != 8 {
		t.Fatalf("%d frames: %v", len(all), all)
	}
	for i, s := range all[:len(all)-1] {
		got, err := restOfFeed(other.Feed(t, "GET", "/sample/run/feed?turn=t2", "", "Last-Event-ID", s.Id))
		if err != io.EOF { // it is not wrapped
			t.Fatal(err)
		}
		rest := []edgetest.Sampled{}
		for _, s := range got {
			if s.Id != "" {
				rest = append(rest, s)
			}
		}
		if fmt.Sprint(rest) != fmt.Sprint(all[i+1:]) {
			t.Errorf("behind %s: %v, want %v", s.Data, rest, all[i+1:])
		}
		again := 0
		for _, s := range got {
			if s.Data == frameOf(2, 1, "turn.start") && s.Id == "" {
				again++
			}
		}
		if want := min(i, 1); again != want { // who has just got it needs it not
			t.Errorf("behind %s the turn's beginning is told %d times, want %d", s.Data, again, want)
		}
	}
	if a := h.Do("GET", "/sample/run/feed?turn=t2", "", "Last-Event-ID", all[len(all)-1].Id); a.Status != 200 ||
		a.Body != `{"complete":true}`+"\n" {
		t.Errorf("behind the end: %d %s", a.Status, a.Body)
	}
	first := ids("?turn=t1")
	for _, bad := range []string{first[0].Id, first[len(first)-1].Id} {
		if a := h.Do("GET", "/sample/run/feed?turn=t2", "", "Last-Event-ID", bad); a.Status != 400 {
			t.Errorf("a place before it: %d %s", a.Status, a.Body)
		}
	}
	if a := h.Do("GET", "/sample/run/feed?turn=t1", "", "Last-Event-ID", all[3].Id); a.Status != 400 {
		t.Errorf("a place behind it: %d %s", a.Status, a.Body)
	}
	if a := h.Do("GET", "/sample/run/feed?turn=t9&await", "", "Last-Event-ID", all[3].Id); a.Status != 404 {
		t.Errorf("a place in what is not there: %d %s", a.Status, a.Body)
	}
}

// TestNewestOfATurn: who begins within a turn is given what it needs of it once more, behind the opening frame and
// before what comes.
func TestNewestOfATurn(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	storeTurn(h, "run", "t1", 1, true)
	f := h.Feed(t, "GET", "/sample/run/feed?newest&only=type", "")
	f.Want(`snapshot {"after":4,"sum":14}`)
	storeTurn(h, "run", "t2", 2, false)
	g := h.Feed(t, "GET", "/sample/run/feed?newest&only=type", "")
	g.Want(`snapshot {"after":7,"sum":42}`)
	if s := g.Want(`sample {"seq":5,"type":"turn.start","child":""}`); s.Id != "" {
		t.Errorf("it moves the cursor to %s", s.Id)
	}
	h.Must("run", schema.TypeTurnEnd, `{"turn_id":"t2","stop_reason":"end_turn"}`)
	g.Want(`sample {"seq":8,"type":"turn.end","child":""}`)
	f.Want(`sample {"seq":5,"type":"turn.start","child":""}`)
}

// TestLateTurnOfALongRun: a turn late in a long run is found without showing what was before it.
func TestLateTurnOfALongRun(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	for range 3000 {
		w.progress()
	}
	storeTurn(h, "run", "t1", 2, true)
	expectWholeFeed(h.Feed(t, "GET", "/sample/run/feed?turn=t1&only=type", ""), `hello {"after":3001}`,
		"sample "+frameOf(1, 1, "turn.start"), "sample "+frameOf(1, 2, "text.delta"),
		"sample "+frameOf(1, 3, "text.delta"), "sample "+frameOf(1, 4, "turn.end"))
	edgetest.Eventually(t, "it is logged", func() bool { return strings.Contains(h.Logs.String(), `"seq":3005,"events":4,`) })
}
