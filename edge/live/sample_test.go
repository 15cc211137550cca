package live_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/transport"
	"agentstream/schema"
)

// restOfFeed reads to the end of the body.
func restOfFeed(f *edgetest.Feed) (list []edgetest.Sampled, err error) {
	for {
		s, err := f.Next()
		if err != nil {
			return list, err
		}
		list = append(list, s)
	}
}

// expectWholeFeed fails the test unless the body ends whole.
func expectWholeFeed(f *edgetest.Feed, list ...string) {
	f.T.Helper()
	f.Want(list...)
	if s, err := f.Next(); err != io.EOF { // the end of a body is not wrapped
		f.T.Fatalf("%v, %v instead of the end", s, err)
	}
}

// TestStreamByPost: a stream is asked for by a body, on a connection that is taken over, and keeps none of the memory
// for bodies while it is open. The body is bounded and of the stream's media type.
func TestStreamByPost(t *testing.T) {
	var held atomic.Int64
	h := edgetest.NewHouse(t, edgetest.WithSample,
		func(c *edge.Config) { c.Hooks.BodyBytes = held.Store; c.MaxBodyBytes = 4 << 10 })
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.Must("run", schema.TypeTextDelta, `{"text":"abc"}`)
	f := h.Feed(t, "POST", "/sample/look", `{"run":"run","only":"sum"}`)
	f.Want(`hello {"after":0}`, `sample {"seq":2,"sum":14}`)
	edgetest.Eventually(t, "the stream is parked", func() bool { return h.Server.Census().Parked == 1 })
	if n := held.Load(); n != 0 {
		t.Errorf("the stream holds %d bytes of its body", n)
	}
	h.Must("run", schema.TypeTextDelta, `{"text":""}`)
	f.Want(`sample {"seq":3,"sum":25}`)
	h.Must("run", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	expectWholeFeed(f)
	for body, want := range map[string]int{`{"run":`: 400, `{"run":"../x"}`: 400, `{"run":"other"}`: 404,
		`{"run":"` + strings.Repeat("x", 5<<10) + `"}`: 413} {
		if a := h.Do("POST", "/sample/look", body, "Content-Type", "application/json"); a.Status != want ||
			!strings.Contains(a.Body, `{"error":"`) {
			t.Errorf("%.30s: %d %s", body, a.Status, a.Body)
		}
	}
	if a := h.Do("POST", "/sample/look", `x`, "Content-Type", "text/plain"); a.Status != 415 {
		t.Errorf("a text: %d", a.Status)
	}
}

// TestStreamBeginsWithAWrite: what the stream writes is written once for a key, on its conditions, within the limits
// and by callers who may; its frames begin with what was written and end with the turn. A refusal is one of HTTP.
func TestStreamBeginsWithAWrite(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) {
		c.TenantLimits = map[string]edge.IngestLimit{"small": {Bytes: 1}}
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			if r.Header.Get(edgetest.TenantHeader) == "looker" {
				return auth.Caller{Tenant: "acme", Scopes: auth.ScopeRead}, nil
			}
			return edgetest.ByTenant(r)
		}
	})
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`, edgetest.TenantHeader, "small") // all that it may
	const key, path, said = "Idempotency-Key", "/sample/run/ask", `{"text":"hi"}`
	hello, asked := `hello {"after":1}`, `sample {"seq":2,"type":"command.message","child":""}`
	f := h.Feed(t, "POST", path, said, key, "k1")
	f.Want(hello, asked)
	h.Must("run", schema.TypeTurnEnd, `{"turn_id":"t1","stop_reason":"end_turn"}`)
	expectWholeFeed(f, `sample {"seq":3,"type":"turn.end","child":""}`)
	expectWholeFeed(h.Feed(t, "POST", path, said, key, "k1"), hello, asked,
		`sample {"seq":3,"type":"turn.end","child":""}`)
	if n := h.Last("run"); n != 3 {
		t.Errorf("the run has %d events after the same question twice", n)
	}
	h.Must("done", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	for _, tt := range []struct {
		path, body string
		status     int
		headers    []string
	}{
		{path, `{"text":"other"}`, 422, []string{key, "k1"}},
		{path, said, 400, []string{key, ""}},
		{path, `[`, 400, nil},
		{path, said, 403, []string{edgetest.TenantHeader, "looker"}},
		{path, said, 429, []string{edgetest.TenantHeader, "small"}},
		{"/sample/done/ask", said, 409, nil},
		{"/sample/nothing/ask", said, 404, nil},
	} {
		a := h.Do("POST", tt.path, tt.body, append(tt.headers, "Content-Type", "application/json")...)
		if a.Status != tt.status || !strings.Contains(a.Body, `{"error":"`) ||
			a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v: %d %s", tt.path, tt.body, tt.headers, a.Status, a.Body)
		}
	}
	if h.Last("run") != 3 || h.Last("nothing") != 0 {
		t.Error("a refusal has written")
	}
}

// TestPlaces: an id is a place. Behind each a stream goes on with what comes later, under any filter, on any node, also
// when the run's beginning has expired; ids are ordered as the log is, and are refused for another run.
func TestPlaces(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	other := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.Hub = h.Hub })
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	w := newWriter(t, h, key)
	w.state("running")
	for range 3 {
		w.text(4)
		w.progress()
	}
	w.state("done")
	read := func(h *edgetest.House, query, last string) (list []string) {
		got, err := restOfFeed(h.Feed(t, "GET", "/sample/run/feed"+query, "", "Last-Event-ID", last))
		if err != io.EOF { // the end of a body is not wrapped
			t.Fatal(err)
		}
		for _, s := range got {
			if s.Id != "" {
				list = append(list, s.Id+" "+s.Data)
			}
		}
		return list
	}
	all := read(h, "", "")
	if len(all) != 11 || !slices.IsSorted(all) {
		t.Fatalf("%d events: %q", len(all), all)
	}
	check := func(from int) {
		for i, line := range all[from : len(all)-1] {
			last, _, _ := strings.Cut(line, " ")
			for query, only := range map[string]string{"": "", "?only=sum": `"sum"`, "?only=type": `"type"`} {
				var want []string
				for _, l := range all[from+i+1:] {
					if strings.Contains(l, only) {
						want = append(want, l)
					}
				}
				for _, at := range []*edgetest.House{h, other} {
					if len(want) == 0 {
						continue // it is complete
					}
					if got := read(at, query, last); !slices.Equal(got, want) {
						t.Errorf("behind %s with %q: %q, want %q", last, query, got, want)
					}
				}
			}
		}
	}
	check(0)
	last, _, _ := strings.Cut(all[len(all)-1], " ")
	if a := h.Do("GET", "/sample/run/feed", "", "Last-Event-ID", last); a.Status != 200 ||
		a.Body != `{"complete":true}`+"\n" {
		t.Errorf("behind the last one: %d %s", a.Status, a.Body)
	}
	h.Must("another", schema.TypeRunLifecycle, `{"state":"running"}`)
	for _, bad := range []string{last, last[1:], strings.ToUpper(last), "../../etc/passwd"} {
		if a := h.Do("GET", "/sample/another/feed", "", "Last-Event-ID", bad); a.Status != 400 {
			t.Errorf("%q in another run: %d %s", bad, a.Status, a.Body)
		}
	}
	h.Log.Expire(key, 2)
	fresh := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.Hub = h.Hub })
	h, other = fresh, fresh
	for i, line := range all { // sums are of what is kept, places stay
		id, _, _ := strings.Cut(line, " ")
		if i < 4 || i == len(all)-1 {
			continue
		}
		got := read(fresh, "", id)
		if len(got) != len(all)-i-1 || got[0][:len(id)] != all[i+1][:len(id)] {
			t.Errorf("behind %s of a run whose beginning has expired: %q", id, got)
		}
	}
}

// TestOpening: a stream that begins at the newest event begins with what was before it, at the seam, and ends
// after the last record.
func TestOpening(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.Must("run", schema.TypeTextDelta, `{"text":"abc"}`)
	s, _, err := h.Dial("/sample/run/feed?newest&only=sum", "Sec-Websocket-Protocol", "sample")
	if err != nil {
		t.Fatal(err)
	}
	f := h.Feed(t, "GET", "/sample/run/feed?newest&only=sum", "")
	f.Want(`snapshot {"after":2,"sum":14}`)
	edgetest.Eventually(t, "both are parked", func() bool { return h.Server.Census().Parked == 2 })
	h.Must("run", schema.TypeTextDelta, `{"text":""}`)
	h.Must("run", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	expectWholeFeed(f, `sample {"seq":3,"sum":25}`)
	lines, ce := s.Wait(t)
	if ce.Code != 1000 || strings.Join(lines, " ") != `{"after":2,"sum":14} {"seq":3,"sum":25}` {
		t.Errorf("%d %q", ce.Code, lines)
	}
}

// TestChildOfStateful: a child is opened by its own id as soon as its root has spawned it, though no archive knows it.
func TestChildOfStateful(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	h.Must("root", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.Spawn("root", "kid")
	f := h.Feed(t, "GET", "/sample/kid/feed", "")
	f.Want(`hello {"after":0}`)
	whole := h.Feed(t, "GET", "/sample/root/feed", "")
	edgetest.Eventually(t, "both are parked", func() bool { return h.Server.Census().Parked == 2 })
	h.Must("kid", schema.TypeTextDelta, `{"text":"abc"}`)
	at := f.Want(`sample {"seq":3,"type":"text.delta","child":"kid"}`)
	f.Want(`sample {"seq":3,"sum":14}`)
	whole.Want(`hello {"after":0}`, `sample {"seq":1,"type":"run.lifecycle","child":""}`,
		`sample {"seq":2,"type":"child.spawn","child":""}`)
	h.Must("root", schema.TypeProgress, `{"done":1}`)
	h.Must("root", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	expectWholeFeed(f)
	expectWholeFeed(h.Feed(t, "GET", "/sample/kid/feed", "", "Last-Event-ID", at.Id), `hello {"after":3}`,
		`sample {"seq":3,"sum":14}`)
	if a := h.Do("GET", "/sample/root/feed", "", "Last-Event-ID", at.Id); a.Status != 400 {
		t.Errorf("the child's id in its root: %d", a.Status)
	}
	if a := h.Do("GET", "/sample/kid/near", ""); a.Status != 404 {
		t.Errorf("on a stream that has no children: %d", a.Status)
	}
}

// TestNotes: routes change a run, or a child by its own id, as it stands, and page through it both ways. A refusal
// bears the protocol's own code, and a credential for a child covers its part of the run alone.
func TestNotes(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	h.Must("root", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.Spawn("root", "kid")
	noted := func(at int) string { return fmt.Sprintf(`{"at":%d,"id":"","re":"say"}`, at) }
	note := func(run, text string, headers ...string) edgetest.Reply {
		return h.Do("POST", "/sample/"+run+"/notes", `{"text":"`+text+`"}`,
			append(headers, "Content-Type", "application/json")...)
	}
	for _, tt := range []struct{ run, text, body string }{
		{"kid", strings.Repeat("x", 1010), noted(3)}, {"kid", "", noted(3)}, {"root", "y", noted(4)},
		{"root", "z", `{"error":"FULL","message":"there are 1033 bytes of text"}`},
	} {
		if a := note(tt.run, tt.text, "Idempotency-Key",
			tt.text[:min(1, len(tt.text))]+"k"); strings.TrimSpace(a.Body) != tt.body {
			t.Errorf("%s %q: %d %s", tt.run, tt.text, a.Status, a.Body)
		}
	}
	if a := note("root", "y", "Idempotency-Key", "yk"); strings.TrimSpace(a.Body) != noted(4) {
		t.Errorf("again: %s", a.Body)
	}
	if a := note("nobody", "y"); a.Status != 404 {
		t.Errorf("a run that is not there: %d", a.Status)
	}
	for _, down := range []string{"", "&down"} {
		var got []string
		for page := ""; ; {
			a := h.Do("GET", "/sample/root/notes?page="+page+down, "")
			m := regexp.MustCompile(`"next":"([^"]*)"`).FindStringSubmatch(a.Body)
			if m == nil {
				t.Fatal(a.Body)
			}
			for _, s := range regexp.MustCompile(`"seq":(\d)`).FindAllStringSubmatch(a.Body, -1) {
				got = append(got, s[1])
			}
			page = m[1]
			if page == "" {
				break
			}
		}
		if want := map[string]string{"": "1234", "&down": "4321"}[down]; strings.Join(got, "") != want {
			t.Errorf("%s: %v", down, got)
		}
	}
	if a := h.Do("GET", "/sample/kid/notes", ""); strings.Count(a.Body, `"seq"`) != 1 ||
		!strings.Contains(a.Body, `"child":"kid"`) {
		t.Errorf("of a child: %s", a.Body)
	}
	if a := h.Do("GET", "/sample/kid/notes?page=eA", ""); a.Status != 400 {
		t.Errorf("no page: %d", a.Status)
	}
}

// TestLastWords: a protocol decides how its streams end when a node goes away, in the terms of every transport.
func TestLastWords(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) {
		c.Protocols[0].LastWords = func(_ dialect.Stream, why dialect.Problem, begun bool, end *transport.End) {
			if why.Reason == dialect.ReasonShutdown && begun || why.Reason == dialect.ReasonNotFound && !begun {
				end.GRPC, end.Message = int(codes.DataLoss), fmt.Sprintf("begun %v", begun)
			}
		}
	})
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := edgetest.RPC(t, conn, edgetest.StreamRequest("none", 0, false)); status.Code(err) != codes.DataLoss ||
		!strings.Contains(err.Error(), "begun false") {
		t.Errorf("before it began: %v", err)
	}
	end, begun := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := edgetest.RPCUntil(t, conn, edgetest.StreamRequest("run", 0, false), begun)
		end <- err
	}()
	<-begun
	s, _, err := h.Dial("/sample/run/feed", "Sec-Websocket-Protocol", "sample")
	if err != nil {
		t.Fatal(err)
	}
	f := h.Feed(t, "GET", "/sample/run/feed", "")
	f.Want(`hello {"after":0}`, `sample {"seq":1,"type":"run.lifecycle","child":""}`)
	cut := h.Feed(t, "GET", watched, "")
	edgetest.Eventually(t, "the socket has begun", func() bool { return s.Count() == 2 })
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	expectWholeFeed(f, `again {"why":"shutdown"}`)
	if _, err := restOfFeed(cut); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a protocol that has no such words ends with %v", err)
	}
	if lines, ce := s.Wait(t); ce.Code != 4002 || !strings.Contains(string(ce.Reason), "come again") {
		t.Errorf("closed with %d %s after %q", ce.Code, ce.Reason, lines)
	}
	if err := <-end; status.Code(err) != codes.DataLoss || !strings.Contains(err.Error(), "begun true") {
		t.Errorf("the call ends with %v", err)
	}
}

// TestOverflow: a client for whom more waits than its stream allows is told so, and goes on behind what it has; one
// that reads history is not.
func TestOverflow(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.SendBuffer = 16 << 10 })
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	for range 50 {
		w.progress()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := slowDialer()
	client := &http.Client{Transport: &http.Transport{DialContext: d}}
	defer client.CloseIdleConnections()
	r := h.Request("GET", "/sample/run/near", "").WithContext(ctx)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	edgetest.Eventually(t, "it has all", func() bool { return h.Server.Census().Parked == 1 })
	for n, waiting := 0, 0; waiting < 50; n++ { // events in a row that it does not take
		if n > 20_000 {
			t.Fatal("the client takes everything")
		}
		if waiting++; h.Server.Census().Parked == 1 {
			waiting = 0
		}
		w.progress()
	}
	slow := &edgetest.Feed{T: t, Resp: resp, Lines: bufio.NewReader(resp.Body)}
	list, err := restOfFeed(slow)
	if err != io.EOF || len(list) == 0 || list[len(list)-1].Data != `{"why":"overflow"}` { // it is not wrapped
		t.Fatalf("the slow client ends with %v behind %d events", err, len(list))
	}
	w.state("done")
	last := list[len(list)-2].Id
	rest, err := restOfFeed(h.Feed(t, "GET", "/sample/run/near", "", "Last-Event-ID", last))
	if want := int(h.Last("run")) - (len(list) - 2) + 1; err != io.EOF || len(rest) != want { // it is not wrapped
		t.Errorf("it goes on with %d events, want %d: %v", len(rest), want, err)
	}
}
