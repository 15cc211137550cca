package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"agentstream/schema"
)

// The Go library of the sessions protocol, unmodified: it is told another address and a token. It asks as the one
// for Node does, with ?beta=true on every path; a base without a slash behind it gets one. Its accumulator drops
// what it has of a message when the model call ends, and takes a message for whole by its processed_at: so the
// message comes before span.model_request_end, and always with its time. Answers are JSON for it by their
// Content-Type. It passes over fields that are missing or of another type than it knows: fits looks at those.
func TestSessionsLibraryForGo(t *testing.T) {
	beside(t)
	w := sessionsFor(t)
	for _, base := range []string{"", "/api/v1/cloud"} {
		t.Run("base "+base, func(t *testing.T) {
			here, there := goSessions(w.edges[0].url(base)), goSessions(w.edges[1].url(base))
			for name, use := range map[string]func(*testing.T, sdkSessions, sdkSessions){
				"sessions": useSessions, "turns": useTurns, "previews": usePreviews, "threads": useThreads,
				"actions": useActions, "refusals": useRefusals,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					use(t, here, there)
				})
			}
		})
	}
}

// sdkSessions is the library's service, at one node.
type sdkSessions struct{ anthropic.BetaSessionService }

func goSessions(base string, more ...option.RequestOption) sdkSessions {
	opts := append([]option.RequestOption{option.WithoutEnvironmentDefaults(), option.WithBaseURL(base),
		option.WithAuthToken(edgeToken)}, more...)
	return sdkSessions{anthropic.NewClient(opts...).Beta.Sessions}
}

type (
	streamed = anthropic.BetaManagedAgentsStreamSessionEventsUnion
	sdkEvent = anthropic.BetaManagedAgentsSessionEventUnion
)

func (s sdkSessions) create(t *testing.T, incremental bool) *anthropic.BetaManagedAgentsSession {
	t.Helper()
	session, err := s.New(t.Context(), anthropic.BetaSessionNewParams{
		Agent:         anthropic.BetaSessionNewParamsAgentUnion{OfString: anthropic.String("agent_e2e")},
		EnvironmentID: "env_e2e", Title: anthropic.String("Grüße 🌍"), Metadata: map[string]string{"a": "b"},
	}, option.WithJSONSet("incremental_streaming_enabled", incremental))
	if err != nil {
		t.Fatal(err)
	}
	fits(t, "session", session)
	return session
}

func userSays(text string) anthropic.BetaManagedAgentsEventParamsUnion {
	e := anthropic.BetaManagedAgentsEventParamsOfUserMessage([]anthropic.BetaManagedAgentsUserMessageEventParamsContentUnion{
		{OfText: &anthropic.BetaManagedAgentsTextBlockParam{Text: text, Type: "text"}}})
	e.OfUserMessage.Type = "user.message"
	return e
}

func (s sdkSessions) send(t *testing.T, id string, events ...anthropic.BetaManagedAgentsEventParamsUnion) {
	t.Helper()
	sent, err := s.Events.Send(t.Context(), id, anthropic.BetaSessionEventSendParams{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	fits(t, "sent", sent)
	if len(sent.Data) != len(events) || sent.Data[0].ID == "" || !sent.Data[0].JSON.ProcessedAt.Valid() {
		t.Errorf("sent: %s", sent.RawJSON())
	}
}

// settledEvent reports whether the session waits for a person again.
func settledEvent(e streamed) bool {
	return e.Type == "session.status_idle" && e.StopReason.Type != "requires_action"
}

// turn sends a message when the stream is open, and reads to the end of the turn. act is called with each event.
func (s sdkSessions) turn(t *testing.T, id, text string, params anthropic.BetaSessionEventStreamParams,
	act func(streamed)) (all []streamed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream := s.Events.StreamEvents(ctx, id, params)
	defer stream.Close()
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	s.send(t, id, userSays(text))
	for stream.Next() {
		e := stream.Current()
		fits(t, e.Type, e)
		all = append(all, e)
		if act != nil {
			act(e)
		}
		if settledEvent(e) {
			return all
		}
	}
	t.Fatalf("%q: the stream ended behind %d events: %v", text, len(all), stream.Err())
	return nil
}

// rest reads n events behind an event.
func (s sdkSessions) rest(t *testing.T, id, after string, n int) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream := s.Events.StreamEvents(ctx, id, anthropic.BetaSessionEventStreamParams{},
		option.WithHeader("Last-Event-ID", after))
	defer stream.Close()
	for len(all) < n && stream.Next() {
		all = append(all, stream.Current().RawJSON())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (s sdkSessions) history(t *testing.T, id string, params anthropic.BetaSessionEventListParams) (all []string) {
	t.Helper()
	pages := s.Events.ListAutoPaging(t.Context(), id, params)
	for pages.Next() {
		all = append(all, pages.Current().RawJSON())
	}
	if err := pages.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func raws(events []streamed) (all []string) {
	for _, e := range events {
		if !strings.HasPrefix(e.Type, "event_") {
			all = append(all, e.RawJSON())
		}
	}
	return all
}

// spoken are the texts of the messages among events.
func spoken(events []streamed) (texts []string) {
	for _, e := range events {
		if e.Type != "agent.message" {
			continue
		}
		for _, b := range e.AsAgentMessage().Content {
			if b.Type == "text" {
				texts = append(texts, b.Text)
			}
		}
	}
	return texts
}

func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: %d lines, want %d; line %d is\n%.300s, want\n%.300s", what, len(got), len(want), i,
				at(got, i), at(want, i))
		}
	}
}

func at(lines []string, i int) string {
	if i >= 0 && i < len(lines) {
		return lines[i]
	}
	return "none"
}

func useSessions(t *testing.T, here, there sdkSessions) {
	agent := fmt.Sprintf("agent_%d", time.Now().UnixNano())
	var made []string
	for i := range 5 {
		s, err := here.New(t.Context(), anthropic.BetaSessionNewParams{EnvironmentID: "env_e2e",
			Metadata: map[string]string{"a": "b"},
			Agent:    anthropic.BetaSessionNewParamsAgentUnion{OfBetaManagedAgentsAgents: &anthropic.BetaManagedAgentsAgentParams{ID: agent, Type: "agent"}}},
			option.WithJSONSet("incremental_streaming_enabled", i%2 == 0))
		if err != nil {
			t.Fatal(err)
		}
		if flag := s.JSON.ExtraFields["incremental_streaming_enabled"].Raw(); flag != fmt.Sprint(i%2 == 0) ||
			s.Type != "session" ||
			s.Status != "idle" || s.Agent.ID != agent || s.Metadata["a"] != "b" || s.CreatedAt.IsZero() ||
			!s.JSON.Resources.Valid() {
			t.Fatalf("created: %s", s.RawJSON())
		}
		made = append(made, s.ID)
	}
	got, err := there.Get(t.Context(), made[0], anthropic.BetaSessionGetParams{})
	if err != nil || got.ID != made[0] || got.EnvironmentID != "env_e2e" {
		t.Fatal(got, err)
	}
	changed, err := there.Update(t.Context(), made[0],
		anthropic.BetaSessionUpdateParams{Title: anthropic.String("changed"), Metadata: map[string]string{"c": "d"}})
	if err != nil || changed.Title != "changed" || len(changed.Metadata) != 2 {
		t.Fatal(changed.RawJSON(), err)
	}
	list := func(order anthropic.BetaSessionListParamsOrder) (ids []string) {
		pages := here.ListAutoPaging(t.Context(),
			anthropic.BetaSessionListParams{Limit: anthropic.Int(2), Order: order, AgentID: anthropic.String(agent)})
		for pages.Next() {
			fits(t, "listed", pages.Current())
			ids = append(ids, pages.Current().ID)
		}
		if err := pages.Err(); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	newest := slices.Clone(made)
	slices.Reverse(newest)
	eventually(t, 10*time.Second, "all sessions are listed, newest first",
		func() bool { return slices.Equal(list(""), newest) })
	if ids := list("asc"); !slices.Equal(ids, made) {
		t.Errorf("asc: %v, want %v", ids, made)
	}
	archived, err := here.Archive(t.Context(), made[1], anthropic.BetaSessionArchiveParams{})
	if err != nil || archived.ArchivedAt.IsZero() {
		t.Fatal(archived.RawJSON(), err)
	}
	gone, err := here.Delete(t.Context(), made[2], anthropic.BetaSessionDeleteParams{})
	if err != nil || gone.ID != made[2] || gone.Type != "session_deleted" {
		t.Fatal(gone.RawJSON(), err)
	}
	eventually(t, 10*time.Second, "what is archived or deleted is not listed", func() bool {
		return slices.Equal(list("asc"), []string{made[0], made[3], made[4]})
	})
}

func useTurns(t *testing.T, here, there sdkSessions) {
	s := here.create(t, true)
	first := here.turn(t, s.ID, "say hello", anthropic.BetaSessionEventStreamParams{}, nil)
	second := there.turn(t, s.ID, "say again", anthropic.BetaSessionEventStreamParams{}, nil)
	if texts := spoken(append(slices.Clone(first), second...)); !slices.Equal(texts,
		[]string{speech, "You said: hello", speech, "You said: again"}) {
		t.Errorf("said: %q", texts)
	}
	seen := raws(append(first, second...))
	sameLines(t, "history", here.history(t, s.ID, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(3)}), seen)
	backwards := slices.Clone(seen)
	slices.Reverse(backwards)
	sameLines(t, "history, newest first", there.history(t, s.ID,
		anthropic.BetaSessionEventListParams{Limit: anthropic.Int(9), Order: "desc"}), backwards)

	// Increments are events that the library does not know: their type, id and JSON are there.
	text, deltas := "", 0
	for _, e := range first {
		if e.Type == "agent.content_block_delta" {
			var d struct{ Delta struct{ Type, Text string } }
			if e.ID == "" || json.Unmarshal([]byte(e.RawJSON()), &d) != nil {
				t.Errorf("%s", e.RawJSON())
			}
			text, deltas = text+d.Delta.Text, deltas+1
		}
	}
	if text != speech+"You said: hello" || deltas < 10 {
		t.Errorf("%d deltas make %q", deltas, text)
	}

	since := first[len(first)-1].ProcessedAt.Truncate(time.Second) // the library writes no fractions
	var later, users []string
	for _, e := range append(slices.Clone(first), second...) {
		if e.ProcessedAt.After(since) {
			later = append(later, e.RawJSON())
		}
		if e.Type == "user.message" || e.Type == "agent.message" {
			users = append(users, e.RawJSON())
		}
	}
	sameLines(t, "since", here.history(t, s.ID,
		anthropic.BetaSessionEventListParams{CreatedAtGt: anthropic.Time(since)}), later)
	sameLines(t, "of types", here.history(t, s.ID, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(1),
		Types: []anthropic.BetaManagedAgentsSessionEventType{"user.message", "agent.message"}}), users)
	for i, e := range append(slices.Clone(first), second...) {
		if i%7 == 0 || i > len(seen)-4 {
			sameLines(t, "behind "+e.Type, there.rest(t, s.ID, e.ID, len(seen)-i-1), seen[i+1:])
		}
	}
}

func usePreviews(t *testing.T, here, _ sdkSessions) {
	for _, incremental := range []bool{true, false} {
		s := here.create(t, incremental)
		var acc anthropic.BetaManagedAgentsEventAccumulator
		var preview, id string
		params := anthropic.BetaSessionEventStreamParams{EventDeltas: []anthropic.BetaManagedAgentsDeltaType{"agent.message", "agent.thinking"}}
		all := here.turn(t, s.ID, "say hello", params, func(e streamed) {
			if e.Type == "agent.message" {
				id, preview = e.ID, acc.AgentMessageText(e.ID)
			}
			acc.Accumulate(e)
		})
		want := strings.Join(spoken(all), "")
		if preview != want || !strings.HasPrefix(want, speech) {
			t.Errorf("previewed %q, want %q", preview, want)
		}
		if got := acc.AgentMessageText(id); got != want || len(acc.AgentMessages) != 1 {
			t.Errorf("accumulated %q in %d messages, want %q", got, len(acc.AgentMessages), want)
		}
		sameLines(t, "history", here.history(t, s.ID, anthropic.BetaSessionEventListParams{}), raws(all))
	}
}

func useThreads(t *testing.T, here, there sdkSessions) {
	s := here.create(t, true)
	all := here.turn(t, s.ID, "child of hope", anthropic.BetaSessionEventStreamParams{}, nil)
	if texts := spoken(all); !slices.Equal(texts, []string{"The child has said it."}) {
		t.Errorf("the session says %q", texts)
	}
	pages := there.Threads.ListAutoPaging(t.Context(), s.ID,
		anthropic.BetaSessionThreadListParams{Limit: anthropic.Int(1)})
	var threads []anthropic.BetaManagedAgentsSessionThread
	for pages.Next() {
		fits(t, "thread", pages.Current())
		threads = append(threads, pages.Current())
	}
	if err := pages.Err(); err != nil || len(threads) != 2 || threads[0].ParentThreadID != "" ||
		threads[1].ParentThreadID != threads[0].ID {
		t.Fatal(threads, err)
	}
	child := threads[1].ID
	if got, err := here.Threads.Get(t.Context(), child,
		anthropic.BetaSessionThreadGetParams{SessionID: s.ID}); err != nil || got.RawJSON() != threads[1].RawJSON() {
		t.Error(got.RawJSON(), err)
	}
	events := here.Threads.Events.ListAutoPaging(t.Context(), child,
		anthropic.BetaSessionThreadEventListParams{SessionID: s.ID, Limit: anthropic.Int(4)})
	var lines, ids, texts []string
	for events.Next() {
		e := events.Current()
		fits(t, e.Type, e)
		lines, ids = append(lines, e.RawJSON()), append(ids, e.ID)
		if e.Type == "agent.message" {
			texts = append(texts, textOf(e)...)
		}
	}
	if err := events.Err(); err != nil || !slices.Equal(texts, []string{speech, "You said: of hope"}) {
		t.Fatalf("the child says %q, %v", texts, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream := there.Threads.Events.StreamEvents(ctx, child,
		anthropic.BetaSessionThreadEventStreamParams{SessionID: s.ID}, option.WithHeader("Last-Event-ID", ids[2]))
	defer stream.Close()
	var rest []string
	for len(rest) < len(lines)-3 && stream.Next() {
		rest = append(rest, stream.Current().RawJSON())
	}
	sameLines(t, "thread, resumed", rest, lines[3:])
	shut, err := here.Threads.Archive(t.Context(), child, anthropic.BetaSessionThreadArchiveParams{SessionID: s.ID})
	if err != nil || shut.ArchivedAt.IsZero() {
		t.Error(shut.RawJSON(), err)
	}
}

func textOf(e sdkEvent) (texts []string) {
	for _, b := range e.AsAgentMessage().Content {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	return texts
}

func useActions(t *testing.T, here, there sdkSessions) {
	s := here.create(t, false)
	confirm := func(result anthropic.BetaManagedAgentsUserToolConfirmationEventParamsResult) func(streamed) {
		return func(e streamed) {
			if e.StopReason.Type == "requires_action" {
				there.send(t, s.ID, anthropic.BetaManagedAgentsEventParamsOfUserToolConfirmation(result,
					e.StopReason.EventIDs[0], "user.tool_confirmation"))
			}
		}
	}
	result := func(e streamed) {
		if e.StopReason.Type == "requires_action" {
			r := anthropic.BetaManagedAgentsEventParamsOfUserCustomToolResult(e.StopReason.EventIDs[0])
			r.OfUserCustomToolResult.Type = "user.custom_tool_result"
			r.OfUserCustomToolResult.Content = []anthropic.BetaManagedAgentsUserCustomToolResultEventParamsContentUnion{
				{OfText: &anthropic.BetaManagedAgentsTextBlockParam{Text: "42", Type: "text"}}}
			there.send(t, s.ID, r)
		}
	}
	began := false
	interrupt := func(e streamed) {
		if e.Type == "session.status_running" && !began {
			began = true
			there.send(t, s.ID, anthropic.BetaManagedAgentsEventParamsOfUserInterrupt("user.interrupt"))
		}
	}
	for _, c := range []struct {
		text, answer, stop string
		act                func(streamed)
	}{
		{"confirm it", "It is sunny.", "end_turn", confirm("allow")},
		{"confirm it again", "It is denied: ", "end_turn", confirm("deny")},
		{"custom tool", "Found: 42", "end_turn", result},
		{"long story", "", "cancelled", interrupt},
		{"fail now", "", "retries_exhausted", nil},
	} {
		all := here.turn(t, s.ID, c.text, anthropic.BetaSessionEventStreamParams{}, c.act)
		texts := spoken(all)
		if got := at(texts, len(texts)-1); c.answer != "" && got != c.answer || all[len(all)-1].StopReason.Type != c.stop {
			t.Errorf("%s: %q, %s", c.text, texts, all[len(all)-1].RawJSON())
		}
		for _, e := range all {
			if e.Type == "agent.tool_use" && (e.Name != "weather" || string(e.EvaluatedPermission) != "ask" ||
				fmt.Sprint(e.Input) != "map[city:Grüße 🌍]") {
				t.Errorf("%s: %s", c.text, e.RawJSON())
			}
		}
	}
}

func useRefusals(t *testing.T, here, there sdkSessions) {
	s := here.create(t, false)
	if _, err := there.Archive(t.Context(), s.ID, anthropic.BetaSessionArchiveParams{}); err != nil {
		t.Fatal(err)
	}
	nobody := schema.NewIDs().Event(time.Now(), "")
	for want, call := range map[string]func() error{
		"409 conflict_error": func() error {
			_, err := here.Events.Send(t.Context(), s.ID,
				anthropic.BetaSessionEventSendParams{Events: []anthropic.BetaManagedAgentsEventParamsUnion{userSays("say x")}})
			return err
		},
		"404 not_found_error": func() error {
			_, err := here.Get(t.Context(), nobody, anthropic.BetaSessionGetParams{})
			return err
		},
		"400 invalid_request_error": func() error {
			_, err := here.Events.List(t.Context(), s.ID, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(-1)})
			return err
		},
		"401 authentication_error": func() error {
			_, err := here.Get(t.Context(), s.ID, anthropic.BetaSessionGetParams{}, option.WithAuthToken("wrong"))
			return err
		},
		"404 not_found_error, of a stream": func() error {
			return here.Events.StreamEvents(t.Context(), nobody, anthropic.BetaSessionEventStreamParams{}).Err()
		},
		"400 invalid_request_error, of a stream": func() error {
			return here.Events.StreamEvents(t.Context(), s.ID, anthropic.BetaSessionEventStreamParams{},
				option.WithHeader("Last-Event-ID", nobody)).Err()
		},
	} {
		var refused *anthropic.Error
		err := call()
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", want, err)
			continue
		}
		got := fmt.Sprintf("%d %s", refused.StatusCode, refused.Type())
		if first, _, _ := strings.Cut(want, ","); got != first || cmp.Or(refused.RequestID, "none") == "none" ||
			refused.Response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s of request %q: %s", want, got, refused.RequestID, refused.RawJSON())
		}
		if refused.StatusCode == http.StatusConflict && refused.Request.Header.Get("X-Stainless-Retry-Count") != "0" {
			t.Errorf("%s: tried again", want)
		}
	}
}
