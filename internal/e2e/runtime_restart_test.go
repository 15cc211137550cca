package e2e_test

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"

	"agentstream/protocols/nimi"
)

// call makes a unary call at either edge.
func (w *scenarioWorld) call(method, app string, in, out proto.Message) {
	w.t.Helper()
	if err := w.conns[rand.IntN(len(w.conns))].Invoke(asApp(w.t.Context(), app, ""), runtimeService+method, in, out,
		grpc.WaitForReady(true)); err != nil {
		w.t.Fatal(err)
	}
}

// feeds are the runs of the feeds, with what one of their messages is.
var feeds = []struct{ kind, run, payload string }{
	{nimi.StreamAccount, nimi.FeedRun(nimi.StreamAccount), `{"eventType":2,"state":2}`},
	{nimi.StreamMemory, nimi.FeedRun(nimi.StreamMemory), `{"eventType":3,"bank":{"scope":1}}`},
	{nimi.StreamMessage, nimi.MessageRun(runtimeApp),
		`{"eventType":1,"messageId":"m","fromAppId":"other","toAppId":"` + runtimeApp + `"}`},
	{nimi.StreamTransfer, nimi.FeedRun(nimi.StreamTransfer), `{"installSessionId":"i","phase":"download"}`},
	{nimi.StreamProvider, nimi.FeedRun(nimi.StreamProvider),
		`{"provider_name":"openai","state":"healthy","models":["m"]}`},
}

// feed writes a message into each feed, by one of the edges, and a word into each realtime session.
func (w *scenarioWorld) feed(edge int, sessions []string) {
	for _, f := range feeds {
		w.append(edge, f.run, `{"type":"`+nimi.FeedType(f.kind)+`","payload":`+f.payload+`}`)
	}
	for _, s := range sessions {
		w.append(edge, s, `{"type":"text.delta","payload":{"text":"a word"}}`)
	}
}

// append appends what must be taken.
func (w *scenarioWorld) append(edge int, run, event string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	url := "http://" + w.roles[killEdge][edge].addr + "/v1/agent/runs/" + run + "/events"
	if _, _, err := post(ctx, http.DefaultClient, url, crand.Text(), []byte(event)); err != nil {
		w.t.Fatalf("%s: %v", url, err)
	}
}

// job begins a scenario as a job.
func (w *scenarioWorld) job(app, said string) string {
	in, out := jobOf(textScenario("m", said)), &runtimev1.SubmitScenarioJobResponse{}
	in.Head.AppId = app
	w.call("AiService/SubmitScenarioJob", app, in, out)
	return out.GetJob().GetJobId()
}

// restartClients makes n clients, of all kinds by turns, and what they watch. It returns the realtime sessions too.
func (w *scenarioWorld) restartClients(n int) (all []*restartClient, sessions []string) {
	for i := range n {
		k := &runtimeKinds[i%len(runtimeKinds)]
		c := &restartClient{runtimeKind: k, app: runtimeApp, ends: map[codes.Code]int{}}
		switch k.name {
		case "scenario":
			c.key = fmt.Sprintf("restart-%d", i)
			c.run = c.key // what is said
		case "job", "workflow", "agent":
			c.run = w.job(runtimeApp, fmt.Sprintf("%s-%d", k.name, i))
		case "export":
			c.app = "app.exports"
			if i < 5*len(runtimeKinds) {
				w.job(c.app, fmt.Sprintf("export-%d", i))
			}
		case "realtime":
			if len(sessions) < 5 { // which several read
				var s runtimev1.OpenRealtimeSessionResponse
				w.call("AiRealtimeService/OpenRealtimeSession", runtimeApp,
					&runtimev1.OpenRealtimeSessionRequest{Head: textScenario("m", "").GetHead()}, &s)
				sessions = append(sessions, s.GetSessionId())
			}
			c.run = sessions[i%len(sessions)]
		}
		all = append(all, c)
	}
	return all, sessions
}

// replace replaces the edges one after the other: each is told to end, has ended, and comes back. between is called
// with an edge that is there.
func (w *scenarioWorld) replace(between func(edge int)) {
	for i, e := range w.roles[killEdge] {
		e.end(syscall.SIGTERM)
		between(1 - i)
		e.start()
		e.await(w.t)
		between(i)
	}
}

// TestRuntimeRollingRestart replaces two edges one after the other under streams of all modes. The status that each
// stream ends with says what has happened, and who comes again has lost nothing.
func TestRuntimeRollingRestart(t *testing.T) {
	beside(t)
	n, drain, pause := 8*len(runtimeKinds), "300ms", 50*time.Millisecond
	if runtimeLong() {
		n, drain, pause = 1000, "3s", 300*time.Millisecond
	}
	hold := make(chan struct{})
	w := newScenarioWorld(t, &oneByOne{pause: pause, hold: hold}, "--drain", drain)
	clients, sessions := w.restartClients(n)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var over atomic.Bool
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() {
			for at := i; ctx.Err() == nil; at++ {
				if done, err := c.watch(ctx, w.conns[at%2]); err != nil {
					t.Error(err)
					return
				} else if done && (c.mode != 'C' || over.Load()) {
					return
				}
				time.Sleep(time.Duration(20+rand.IntN(100)) * time.Millisecond)
			}
		})
	}
	all := func(what string, holds func(*restartClient) bool) {
		t.Helper()
		eventually(t, 2*time.Minute, what, func() bool {
			return !slices.ContainsFunc(clients, func(c *restartClient) bool { return !holds(c) }) || t.Failed()
		})
	}
	all("all streams are open", func(c *restartClient) bool { return c.begun.Load() > 0 })
	fed := int64(0)
	w.replace(func(edge int) {
		w.feed(edge, sessions)
		if fed++; fed == 2 {
			close(hold) // the answers go on while the second edge is replaced
		}
	})
	over.Store(true)
	for _, s := range sessions {
		w.call("AiRealtimeService/CloseRealtimeSession", runtimeApp,
			&runtimev1.CloseRealtimeSessionRequest{SessionId: s}, &runtimev1.CloseRealtimeSessionResponse{})
	}
	// its beginning and its end
	want := map[string]int64{nimi.StreamMemory: fed, nimi.StreamMessage: fed, "realtime": fed + 2}
	all("everybody has everything", func(c *restartClient) bool { return c.seen.Load() >= want[c.name] })
	time.AfterFunc(time.Second, leave) // those that have an end have had it
	group.Wait()
	for _, c := range clients {
		if n := want[c.name]; n > 0 && c.seen.Load() != n {
			t.Errorf("%s: %d messages, want %d", c.name, c.seen.Load(), n)
		}
	}
	w.ends(clients)
}

// ends prints how the streams of each kind ended, and holds that each kind was cut by a node that went away.
func (w *scenarioWorld) ends(clients []*restartClient) {
	for i := range runtimeKinds {
		k, streams, seen, ends := &runtimeKinds[i], 0, int64(0), map[codes.Code]int{}
		for _, c := range clients {
			if c.runtimeKind != k {
				continue
			}
			for code, n := range c.ends {
				ends[code] += n
			}
			streams, seen = streams+1, seen+c.seen.Load()
			if k.terminal != nil && k.mode != 'D' && c.ends[codes.OK] == 0 {
				w.t.Errorf("%s %s has not had its end: %v", k.name, c.run, c.ends)
			}
		}
		w.t.Logf("%c %-9s %3d clients, %4d messages, ended %v", k.mode, k.name, streams, seen, ends)
		if (ends[codes.Canceled] == 0) != (k.mode == 'C') {
			w.t.Errorf("%s: %v", k.name, ends)
		}
	}
}
