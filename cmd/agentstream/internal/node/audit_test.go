package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph"
	"agentstream/protocols/metis"
	"agentstream/protocols/native"
	"agentstream/protocols/otlp"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// auditToken is in the credential of every caller, and in no line.
const auditToken = "canary-token"

// bySubject lets in who says "NAME SCOPES TOKEN".
func bySubject(r *http.Request) (auth.Caller, error) {
	name, rest, _ := strings.Cut(r.Header.Get(edgetest.As), " ")
	names, _, _ := strings.Cut(rest, " ")
	scopes, err := auth.ParseScopes(strings.Split(names, ","))
	return auth.Caller{Tenant: edgetest.Tenant, Subject: name, Credential: "key:" + name, Scopes: scopes}, err
}

// audited is a node with an audit feed.
type audited struct {
	*edgetest.Node
	t     *testing.T
	trail *audit.Trail
	read  schema.Seq // of the feed, as far as it was looked at
}

func startAudited(t *testing.T) *audited {
	t.Helper()
	a := &audited{t: t}
	f := &ListenFlags{Console: true}
	shares, err := auth.NewShares(auth.SharesConfig{Secret: []byte(strings.Repeat("s", 64)),
		Still: func(auth.Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	a.Node = edgetest.Share().Start(t, native.Protocol(), func(c *edge.Config) {
		a.trail = audit.New(audit.Config{Log: c.Appender, Every: time.Hour})
		c.Protocols, c.Operator, c.Catalog, c.Shares, c.LogTimeout = f.protocols(otlp.New(otlp.Config{})), letters{}, listed{}, shares, time.Second
		c.Authenticate, c.Audit = bySubject, a.trail
	})
	return a
}

// lines returns those that were not looked at, and fails when one holds content or a credential.
func (a *audited) lines() (all []audit.Line) {
	a.t.Helper()
	if err := a.trail.Flush(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	for p, err := range a.Nodes.Log.Packs(a.t.Context(), audit.FeedOf(edgetest.Tenant), 0, schema.MaxSeq) {
		if err != nil {
			return all // there is no feed yet
		}
		for r, err := range p.Records(a.read) {
			if err != nil {
				a.t.Fatal(err)
			}
			a.read = r.Seq
			if strings.Contains(string(r.Line), canary) {
				a.t.Errorf("a line holds content or a credential: %s", r.Line)
			}
			if string(r.Type) == schema.TypeSessionCreated {
				continue
			}
			var l audit.Line
			if err := json.Unmarshal(r.Payload(), &l); err != nil {
				a.t.Fatal(err)
			}
			all = append(all, l)
		}
	}
	return all
}

// ask sends everything to a route that canaries know, and returns the answers.
func (a *audited) ask(rt edge.RouteRow, run, who string) (answers []string) {
	path := strings.NewReplacer("{run}", run, "{id}", "1", "{thread}", qoder.ThreadID(run, "kid"), "{part}",
		langgraph.RunID(run, 3), "{turn}", metis.TurnID(run, 3),
		"{request}", "q", "{ref}", "blob_1", "{assistant}", "a").Replace(rt.Path)
	if rt.Transport == dialect.GRPC || strings.HasPrefix(rt.Path, rpcPrefix) {
		for _, m := range messagesOf(rt.Path, run) {
			answers = append(answers, callFor(a.t, a.Node, rt.Path, m, who))
		}
		return answers
	}
	for _, body := range asks(rt.Path) {
		answers = append(answers, requestFor(a.t, a.Node, rt.Method, path, strings.ReplaceAll(body, "RUN", run), who))
	}
	return answers
}

// TestAuditHasWhatWasDone asks every route of every protocol, as callers who may and as callers who may not, and holds
// the audit feed to what the log and the answers say was done: each command that was stored is a line with its number,
// each run that a reader was given is opened once, each refusal is counted, and nothing else is there.
func TestAuditHasWhatWasDone(t *testing.T) {
	a := startAudited(t)
	count := map[audit.Action]int{}
	for i, rt := range a.Edge.Table() {
		if rt.Needs == 0 || strings.HasPrefix(rt.Path, "/console") {
			continue
		}
		name, run := fmt.Sprint("caller", i), fmt.Sprint("held", i)
		a.Say(run, planted(i%2 == 0)...)
		before := len(a.Types(run))
		answers := a.ask(rt, run, name+" "+auth.ScopeAll.String()+" "+auditToken)
		a.hold(rt, name, run, before, answers, a.lines(), count)
		without := (auth.ScopeAll &^ rt.Needs).String()
		refused := 0
		for _, answer := range a.ask(rt, run, "stranger"+name+" "+cmp.Or(without, "operate")+" "+auditToken) {
			if strings.Contains(answer, "403") || strings.Contains(answer, "grpc-status:7") {
				refused++
			}
		}
		got := 0
		for _, l := range a.lines() {
			if l.Action != audit.Refused || l.Caller != "stranger"+name || l.Route != rt.Pattern {
				t.Errorf("%s, refused: %+v", rt.Pattern, l)
			}
			got += l.Count
			count[l.Action] += l.Count
		}
		if got != refused {
			t.Errorf("%s: %d refusals, %d counted", rt.Pattern, refused, got)
		}
	}
	for action, least := range map[audit.Action]int{audit.Opened: 30, audit.Refused: 100, audit.Decided: 6,
		audit.Cancelled: 4, audit.Shared: 1, audit.Exported: 1, audit.Deleted: 3} {
		if count[action] < least {
			t.Errorf("%d lines %s: the test sees little", count[action], action)
		}
	}
	t.Logf("%v", count)
}

// hold compares the lines that came of asking a route with what the run's log has got.
func (a *audited) hold(rt edge.RouteRow, name, run string, before int, answers []string, lines []audit.Line,
	count map[audit.Action]int) {
	a.t.Helper()
	var want, got []string
	for i, typ := range a.Types(run)[before:] {
		if action := audit.ActionOf(typ); action != "" {
			want = append(want, fmt.Sprint(action, " ", typ, " ", before+1+i))
		}
	}
	opened := 0
	for _, l := range lines {
		count[l.Action]++
		if l.Caller != name || l.Credential != "key:"+name || l.Count != 0 {
			a.t.Errorf("%s: %+v", rt.Pattern, l)
		}
		switch {
		case l.Action == audit.Opened:
			opened++
		case l.Event != "" && l.Run == run:
			got = append(got, fmt.Sprint(l.Action, " ", l.Event, " ", l.Seq))
		}
	}
	if !slices.Equal(got, want) {
		a.t.Errorf("%s: lines %q, the log has %q", rt.Pattern, got, want)
	}
	if rt.Needs != auth.ScopeRead || !strings.Contains(rt.Path, "{run}") {
		return
	}
	given := slices.ContainsFunc(answers, func(s string) bool { return strings.Contains(s, canary) })
	if opened > 1 || given && opened == 0 && !strings.Contains(rt.Path, "replay.jsonl") {
		a.t.Errorf("%s: opened in %d lines, given %v", rt.Pattern, opened, given)
	}
}
