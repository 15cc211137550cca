package agentstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// realServer is the server itself over a log in memory, and its address.
func realServer(t *testing.T, change ...func(*edge.Config)) string {
	t.Helper()
	url, stop, err := StartServer(change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return url
}

// StartServer starts a server over a log in memory, for tests and examples. stop returns when all of it has ended.
func StartServer(change ...func(*edge.Config)) (url string, stop func() error, err error) {
	log := memory.New()
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		return "", nil, err
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: &memory.Keys{}})
	if err != nil {
		return "", nil, err
	}
	cfg := edge.Config{Hub: hub, Appender: app, Protocols: []protocol.Protocol{native.Protocol()},
		DrainWindow: time.Millisecond, Retry: time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := edge.New(cfg)
	if err != nil {
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	hubCtx, stopHub := context.WithCancel(context.Background())
	served, hubbed := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.Run(ctx, ln) }()
	go func() { hubbed <- hub.Run(hubCtx) }()
	stop = func() error {
		cancel()
		err := <-served
		stopHub()
		return errors.Join(err, <-hubbed)
	}
	return "http://" + ln.Addr().String(), stop, nil
}

// A server that has enough of a tenant says for how long, and the client waits for as long.
func TestAppendWaitsForTheServersLimit(t *testing.T) {
	var waits []time.Duration
	url := realServer(t, func(c *edge.Config) { c.IngestLimit = edge.IngestLimit{Events: 20} })
	c := dial(t, url, func(cfg *Config) { cfg.Hooks.Retrying = func(_ error, d time.Duration) { waits = append(waits, d) } })
	events := slices.Repeat([]schema.Event{{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"x"}`)}}, 30)
	for want := range 2 {
		r, err := c.Run("run").Append(t.Context(), "", events...)
		if err != nil || r.Last != schema.Seq(30*(want+1)) {
			t.Fatalf("%+v %v", r, err)
		}
	}
	if len(waits) != 1 || waits[0] < time.Second || waits[0] > time.Second+backoffFirst {
		t.Errorf("waited %v", waits)
	}
}

// tell stores a scenario as a producer would, and returns what it told.
func tell(t *testing.T, c *Client, run, scenario string) []schema.Event {
	t.Helper()
	events := schematest.ByName(scenario).Events
	for part := range slices.Chunk(events, 300) {
		if _, err := c.Run(run).Append(t.Context(), "", part...); err != nil {
			t.Fatalf("%s: %v", scenario, err)
		}
	}
	return events
}

// folded sums up a stream.
func folded(t *testing.T, f *schema.Fold, s *Stream) (events int) {
	t.Helper()
	defer s.Close()
	for e, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if err := Fold(f, &e); err != nil {
			t.Fatal(err)
		}
		events++
	}
	return events
}

// T1 (native §9): what a producer said comes out of a real server as it was said, over HTTP/1.1 and
// HTTP/2, and marshal, unmarshal, marshal changes no byte of it.
func TestT1RoundTripThroughAServer(t *testing.T) {
	url := realServer(t)
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	clients := map[string]*Client{"HTTP/1.1": dial(t, url),
		"HTTP/2": dial(t, url, func(c *Config) { c.HTTPClient = &http.Client{Transport: h2} })}
	writer := clients["HTTP/1.1"]
	for _, sc := range schematest.All() {
		told := tell(t, writer, sc.Name, sc.Name)
		for proto, c := range clients {
			s := c.Run(sc.Name).Watch(t.Context(), Options{Detail: DetailFull})
			n := 0
			for e, err := range s.All(t.Context()) {
				if err != nil {
					t.Fatalf("%s over %s: %v", sc.Name, proto, err)
				}
				first, err := e.MarshalJSON()
				if err != nil || !bytes.Equal(first, s.Line()) {
					t.Fatalf("%s over %s: %v, decoded and encoded\n%s\nis not what came\n%s", sc.Name, proto, err, first, s.Line())
				}
				var again schema.Event
				if err := again.UnmarshalJSON(first); err != nil {
					t.Fatal(err)
				}
				if second, _ := again.MarshalJSON(); !bytes.Equal(second, first) {
					t.Fatalf("%s over %s: the second time\n%s\nis not the first\n%s", sc.Name, proto, second, first)
				}
				want := told[n]
				if e.Seq != schema.Seq(n+1) || e.Type != want.Type || e.ChildID != want.ChildID ||
					string(e.Extra) != string(want.Extra) ||
					string(e.Payload) != string(want.Payload) && len(want.Payload) > 0 {
					t.Fatalf("%s over %s: seq %d is %s, told was %+v", sc.Name, proto, e.Seq, s.Line(), want)
				}
				n++
			}
			if n != len(told) {
				t.Fatalf("%s over %s: %d events of %d", sc.Name, proto, n, len(told))
			}
		}
		i := 0
		for e, err := range writer.Run(sc.Name).Export(t.Context(), 1, schema.Seq(len(told)-1)) {
			if i++; err != nil || e.Seq != schema.Seq(i+1) || e.Type != told[i].Type {
				t.Fatalf("%s exported: seq %d, %v", sc.Name, e.Seq, err)
			}
		}
		if i != len(told)-2 {
			t.Fatalf("%s: %d events exported of %d", sc.Name, i, len(told)-2)
		}
	}
}

// Folded detail is fewer events and the same sum, with nothing unexplained.
func TestViewsHaveTheSameSum(t *testing.T) {
	c := dial(t, realServer(t))
	for _, sc := range schematest.All() {
		tell(t, c, sc.Name, sc.Name)
		var full, fold schema.Fold
		all := folded(t, &full, c.Run(sc.Name).Watch(t.Context(), Options{Detail: DetailFull}))
		few := folded(t, &fold, c.Run(sc.Name).Watch(t.Context(), Options{}))
		want := string(full.AppendSnapshot(nil))
		if got := string(fold.AppendSnapshot(nil)); got != want {
			t.Errorf("%s folded:\n%s\nwant\n%s", sc.Name, got, want)
		}
		if few > all {
			t.Errorf("%s: %d events, %d folded", sc.Name, all, few)
		}
	}
}

// The nesting that an event may have is within a snapshot deeper still.
func TestSnapshotOfTheDeepestEvent(t *testing.T) {
	c := dial(t, realServer(t))
	deep := func(n int) []byte {
		return []byte(`{"call_id":"c","tool":"t","input":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	n := 126
	for ; n > 0; n-- {
		if _, err := c.Run("r1").Append(t.Context(), "",
			schema.Event{Type: schema.TypeToolStart, Payload: deep(n)}); err == nil {
			break
		}
	}
	if n < 100 {
		t.Fatalf("input of depth %d is refused", n+1)
	}
	f, err := c.Run("r1").Snapshot(t.Context(), 0)
	if err != nil || len(f.Calls) != 1 || len(f.Calls[0].Input) != 2*n {
		t.Fatalf("depth %d: %v", n, err)
	}
	s := c.Run("r1").Watch(t.Context(), Options{Snapshot: true})
	defer s.Close()
	e, err := s.Next(t.Context())
	if err != nil || Fold(f, &e) != nil || len(f.Calls[0].Input) != 2*n {
		t.Fatalf("depth %d on the stream: %v", n, err)
	}
}

// A snapshot, at any event, and the events behind it have the sum of the run, also when the stream
// brings the snapshot.
func TestSnapshotsGoOn(t *testing.T) {
	c := dial(t, realServer(t))
	for _, sc := range schematest.All() {
		name := sc.Name
		last := schema.Seq(len(tell(t, c, name, name)))
		var whole, late schema.Fold
		folded(t, &whole, c.Run(name).Watch(t.Context(), Options{Detail: DetailFull}))
		want := string(whole.AppendSnapshot(nil))
		for at := schema.Seq(1); at <= last; at += max(1, last/20) {
			f, err := c.Run(name).Snapshot(t.Context(), at)
			if err != nil || f.Last != at {
				t.Fatalf("%s at %d: %v", name, at, err)
			}
			folded(t, f, c.Run(name).Watch(t.Context(), Options{After: at}))
			if got := string(f.AppendSnapshot(nil)); got != want {
				t.Fatalf("%s at %d:\n%s\nwant\n%s", name, at, got, want)
			}
		}
		f, err := c.Run(name).Snapshot(t.Context(), 0)
		if err != nil || string(f.AppendSnapshot(nil)) != want {
			t.Errorf("%s at the end: %v", name, err)
		}
		if n := folded(t, &late, c.Run(name).Watch(t.Context(), Options{Snapshot: true})); n != 1 ||
			string(late.AppendSnapshot(nil)) != want {
			t.Errorf("%s, snapshot on the stream: %d events\n%s\nwant\n%s", name, n, late.AppendSnapshot(nil), want)
		}
		if _, err := c.Run(name).Snapshot(t.Context(), last+1); !errors.Is(err, ErrConflict) {
			t.Errorf("a snapshot of the future: %v", err)
		}
	}
	if _, err := c.Run("nobody").Snapshot(t.Context(), 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
}

// What a command becomes is an event that all see; what the state forbids is a conflict; a repeat is
// told so.
func TestCommandsOnAServer(t *testing.T) {
	c := dial(t, realServer(t))
	ctx := t.Context()
	run, err := c.CreateRun(ctx, NewRun{Key: "begin"})
	if err != nil || run.State != schema.StateRunning || run.First != 1 {
		t.Fatalf("%+v, %v", run, err)
	}
	if again, err := c.CreateRun(ctx, NewRun{Key: "begin"}); err != nil || again.RunID != run.RunID || !again.Replayed {
		t.Fatalf("again: %+v, %v", again, err)
	}
	if _, err := c.CreateRun(ctx, NewRun{RunID: run.RunID}); !errors.Is(err, ErrExists) {
		t.Errorf("exists: %v", err)
	}
	if _, err := c.Run(run.RunID).Approve(ctx, ""); !errors.Is(err, ErrConflict) || errors.Is(err, ErrEnded) {
		t.Errorf("approved nothing: %v", err)
	}
	r, err := c.Run(run.RunID).Command(ctx, Command{Key: "p", Name: CommandPause})
	if err != nil || r.First != 2 || r.Replayed {
		t.Fatalf("pause: %+v, %v", r, err)
	}
	if r, err = c.Run(run.RunID).Command(ctx, Command{Key: "p", Name: CommandPause}); err != nil || r.First != 2 ||
		!r.Replayed {
		t.Fatalf("pause again: %+v, %v", r, err)
	}
	var errs []error
	do := func(_ Receipt, err error) { errs = append(errs, err) }
	do(c.Run(run.RunID).Resume(ctx))
	do(c.Run(run.RunID).Redirect(ctx, "the other one"))
	do(c.Run(run.RunID).Append(ctx, "", schema.Event{Type: schema.TypeInputRequested,
		Payload: []byte(`{"request_id":"q1"}`)}))
	do(c.Run(run.RunID).Answer(ctx, "q1", "yes"))
	do(c.Run(run.RunID).Message(ctx, "and quickly"))
	do(c.Run(run.RunID).Cancel(ctx, "enough"))
	do(c.Run(run.RunID).Append(ctx, "", schema.Event{Type: schema.TypeRunLifecycle,
		Payload: []byte(`{"state":"aborted","reason":null}`)}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(run.RunID).Append(ctx, "",
		schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"x"}`)}); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
	var types []string
	for e, err := range c.Run(run.RunID).Watch(ctx, Options{}).All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	want := "run.lifecycle command.pause command.resume command.redirect input.requested command.answer command.message command.cancel run.lifecycle"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("seen %s", got)
	}
	if info, err := c.Run(run.RunID).Info(ctx); err != nil || info.State != schema.StateAborted || info.LastSeq != 9 ||
		info.EndedAt == "" {
		t.Errorf("run %+v, %v", info, err)
	}
}

// catalog is a list of three runs.
type catalog struct{}

func (catalog) Parent(context.Context, string, string) (string, error) { return "", nil }

func (catalog) Runs(_ context.Context, _ string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var out []schema.RunInfo
	for i, r := range []schema.RunInfo{
		{ID: "c", State: schema.StateError, Reason: "r", Last: 9, Usage: schema.Usage{"input_tokens": 3}},
		{ID: "b", State: schema.StateRunning, Last: 8}, {ID: "a", State: schema.StateDone, Last: 7},
	} {
		r.Started = at.Add(-time.Duration(i) * time.Hour)
		r.Updated = r.Started.Add(time.Minute)
		behind := q.After.IsZero() || r.Started.Before(q.After.Started)
		if behind && (len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
			(q.Since.IsZero() || !r.Started.Before(q.Since)) && len(out) < q.Limit {
			out = append(out, r)
		}
	}
	return out, nil
}

func TestRunsInPages(t *testing.T) {
	c := dial(t, realServer(t, func(cfg *edge.Config) { cfg.Catalog = catalog{} }))
	var ids []string
	q := RunsQuery{Limit: 2}
	for {
		p, err := c.Runs(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Runs {
			ids = append(ids, r.RunID)
		}
		q.Cursor = p.NextCursor
		if q.Cursor == "" {
			break
		}
	}
	if fmt.Sprint(ids) != "[c b a]" {
		t.Errorf("runs %v", ids)
	}
	p, err := c.Runs(t.Context(), RunsQuery{States: []schema.RunState{schema.StateError, schema.StatePaused},
		Since: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)})
	if err != nil || len(p.Runs) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	want := RunInfo{RunID: "c", State: schema.StateError, Reason: "r", LastSeq: 9, StartedAt: "2026-01-02T03:04:05.000Z",
		UpdatedAt: "2026-01-02T03:05:05.000Z", EndedAt: "2026-01-02T03:05:05.000Z", Usage: schema.Usage{"input_tokens": 3}}
	if fmt.Sprint(p.Runs[0]) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", p.Runs[0], want)
	}
}

// Costs returns a cost of each message, and of the only child.
func (catalog) Costs(_ context.Context, _ string, q schema.CostsQuery) (out []schema.Cost, err error) {
	usd := 0.25
	switch {
	case q.By == schema.ByDay:
		return []schema.Cost{{Day: q.Since.Format(time.DateOnly), Model: "m", Messages: 2, Input: 3, USD: &usd}}, nil
	case q.By == schema.ByChild && q.Beyond == nil:
		out = append(out, schema.Cost{Messages: 1})
		fallthrough
	case q.By == schema.ByChild:
		out = append(out, schema.Cost{Child: "kid", Messages: 1})
	default:
		for seq := q.After + 1; seq <= 3; seq++ {
			out = append(out, schema.Cost{Seq: seq, Day: "2026-01-02", Model: "m", Messages: 1, Output: 4, USD: &usd})
		}
	}
	return out[:min(q.Limit, len(out))], nil
}

func TestCostsInPages(t *testing.T) {
	c := dial(t, realServer(t, func(cfg *edge.Config) { cfg.Catalog, cfg.Costs = catalog{}, catalog{} }))
	tell(t, c, "r1", "parallel-tools")
	for _, q := range []CostsQuery{{Limit: 1}, {Limit: 1, ByChild: true}} {
		var found []Cost
		for {
			p, err := c.Run("r1").Costs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, p.Costs...)
			q.Cursor = p.NextCursor
			if q.Cursor == "" {
				break
			}
		}
		if q.ByChild && (len(found) != 2 || found[1].Child != "kid" || found[1].USD != nil) {
			t.Errorf("by child: %+v", found)
		}
		if !q.ByChild && (len(found) != 3 || found[2].Seq != 3 || found[2].Model != "m" || *found[2].USD != 0.25) {
			t.Errorf("by message: %+v", found)
		}
	}
	since := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	days, err := c.Costs(t.Context(), since, since.AddDate(0, 0, 3))
	if err != nil || len(days) != 1 || days[0].Day != "2026-01-02" || days[0].Input != 3 {
		t.Errorf("by day: %+v, %v", days, err)
	}
	if _, err := c.Run("nobody").Costs(t.Context(), CostsQuery{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("costs of a run that does not exist: %v", err)
	}
}

// Pages from both ends hold the whole run.
func TestEventsInPages(t *testing.T) {
	c := dial(t, realServer(t))
	told := tell(t, c, "r1", "parallel-tools")
	for _, newest := range []bool{false, true} {
		var types []string
		q := PageQuery{Newest: newest, Limit: 7}
		for {
			p, err := c.Run("r1").Events(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Events {
				types = append(types, e.Type)
			}
			if q.After = p.Next; newest {
				q.After, q.Before = 0, p.Next
			}
			if !p.HasMore {
				break
			}
		}
		if newest {
			slices.Reverse(types)
		}
		for i, typ := range types {
			if typ != told[i].Type {
				t.Fatalf("newest=%v: event %d is %s", newest, i, typ)
			}
		}
		if len(types) != len(told) {
			t.Errorf("newest=%v: %d events of %d", newest, len(types), len(told))
		}
	}
	p, err := c.Run("r1").Events(t.Context(),
		PageQuery{Types: []string{"tool.*"}, Children: []string{RootLane}, Limit: 1000})
	if err != nil || len(p.Events) == 0 || slices.ContainsFunc(p.Events, func(e schema.Event) bool {
		return !strings.HasPrefix(e.Type, "tool.") && e.Type != schema.TypeRunLifecycle // the end passes every filter
	}) {
		t.Errorf("%d tool events, %v", len(p.Events), err)
	}
	if _, err := c.Run("r1").Events(t.Context(), PageQuery{After: 10_000}); !errors.Is(err, ErrCursorAhead) {
		t.Errorf("ahead: %v", err)
	}
}
