package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"agentstream/edge"
	"agentstream/fanout"
	"agentstream/schema"
)

// watcher is a client of the sample over some transport: next returns the data of the next frame, io.EOF at a clean end.
type watcher struct {
	name string
	next func() (string, error)
}

// watchers opens the sample's stream of a run in each way that there is, at a node.
func (h *house) watchers(t *testing.T, run string) (all []watcher) {
	t.Helper()
	f := h.feed(t, "GET", "/sample/"+run+"/feed?await", "")
	p := h.feed(t, "POST", "/sample/look", `{"run":"`+run+`","await":true}`)
	for name, f := range map[string]*feed{"GET": f, "POST": p} {
		all = append(all, watcher{name, func() (string, error) { s, err := f.next(); return s.data, err }})
	}
	s := h.mustTap("ws", "/sample/"+run+"/feed?await", 0, "Sec-WebSocket-Protocol", "sample")
	all = append(all, watcher{"WebSocket", func() (string, error) {
		line, err := s.answer()
		if errors.Is(err, errClosed) && s.code == 1000 {
			err = io.EOF
		}
		return line, err
	}})
	return append(all, watcher{"gRPC", h.watchRPC(t, `{"run":"`+run+`","await":true}`)})
}

// watchRPC opens the sample's stream over gRPC.
func (h *house) watchRPC(t *testing.T, question string) func() (string, error) {
	t.Helper()
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/sample.v1.Sample/Watch")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(wrapperspb.String(question)), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	return func() (string, error) {
		var m wrapperspb.StringValue
		err := s.RecvMsg(&m)
		return m.GetValue(), err
	}
}

// wants reads frames.
func (w watcher) wants(t *testing.T, list ...string) {
	t.Helper()
	for _, want := range list {
		if got, err := w.next(); err != nil || got != want {
			t.Fatalf("%s: %q, %v, want %q", w.name, got, err, want)
		}
	}
}

// TestStreamAwaitsItsRun opens streams of a run that is not there, over every transport, on two nodes, and as subscriptions:
// they begin and are silent, and get all of the run when it begins. To everybody else there is no such run until then, and
// a run of that name of another tenant is none of theirs.
func TestStreamAwaitsItsRun(t *testing.T) {
	h := newHouse(t, withSample)
	other := newHouse(t, withSample, func(c *edge.Config) { c.Hub = h.hub })
	var all []watcher
	for _, at := range []*house{h, other} {
		all = append(all, at.watchers(t, "later")...)
		k := at.talk()
		if m := k.ask(nil, `{"do":"subscribe","id":"a","run":"later","await":true}`); m.Re != "subscribe" || m.At != 0 {
			t.Fatalf("%+v", m)
		}
		all = append(all, watcher{"subscription", func() (string, error) {
			m := k.next()
			return m.line, nil
		}})
		if m := k.ask(nil, `{"do":"subscribe","id":"b","run":"later"}`); m.Error != "NOT-FOUND" {
			t.Errorf("a subscription that does not wait: %+v", m)
		}
	}
	for _, w := range all {
		if w.name != "subscription" {
			w.wants(t, `{"after":0}`)
		}
	}
	h.parked(4) // gRPC is never
	other.parked(4)
	for _, path := range []string{"/sample/later/feed", "/v1/agent/runs/later/stream", "/sample/later/feed?await=&only=x"} {
		if a := h.do("GET", path, ""); a.status != 404 && a.status != 400 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	h.must("later", schema.TypeRunLifecycle, `{"state":"running"}`, tenantHeader, "globex")
	h.must("later", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.must("later", schema.TypeTextDelta, `{"text":"abc"}`)
	for _, w := range all {
		if w.name != "subscription" {
			w.wants(t, `{"seq":1,"type":"run.lifecycle","child":""}`, `{"seq":2,"type":"text.delta","child":""}`, `{"seq":2,"sum":14}`)
			continue
		}
		for seq := range 2 {
			if line, err := w.next(); err != nil || !strings.Contains(line, fmt.Sprintf(`"seq":%d,`, seq+1)) || !strings.Contains(line, `"run_id":"later"`) {
				t.Fatalf("%v %s", err, line)
			}
		}
	}
	h.must("later", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	for _, w := range all {
		if w.name == "subscription" {
			continue
		}
		w.wants(t, `{"seq":3,"type":"run.lifecycle","child":""}`, `{"sum":14}`)
		if got, err := w.next(); err != io.EOF { //nolint:errorlint // it is not wrapped
			t.Errorf("%s: %q %v behind the end", w.name, got, err)
		}
	}
	for _, w := range h.watchers(t, "later") { // what is there is not waited for
		w.wants(t, `{"after":0}`, `{"seq":1,"type":"run.lifecycle","child":""}`)
	}
	for _, bad := range []string{`{"run":"later2","await":true,"last":"0000"}`, `{"run":"../x","await":true}`, `{"run":"a b","await":true}`} {
		if a := h.do("POST", "/sample/look", bad, "Content-Type", "application/json"); a.status != 400 {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
	if logs := h.logs.String(); strings.Contains(logs, `"level":"ERROR"`) {
		t.Error(logs)
	}
}

// TestAwaitedChild: an id that is waited for becomes that of a child. Its stream goes on as the child's, over every
// transport, without another beginning.
func TestAwaitedChild(t *testing.T) {
	h := newHouse(t, withSample)
	h.must("root", schema.TypeRunLifecycle, `{"state":"running"}`)
	var all []watcher
	for _, w := range h.watchers(t, "kid") {
		w.wants(t, `{"after":0}`)
		if w.name != "POST" { // a stream that has no children
			all = append(all, w)
		} else {
			defer func() {
				if got, err := w.next(); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("a stream that has no children: %q, %v", got, err)
				}
			}()
		}
	}
	k := h.talk()
	if m := k.ask(nil, `{"do":"subscribe","id":"a","run":"kid","await":true}`); m.Re != "subscribe" {
		t.Fatalf("%+v", m)
	}
	h.parked(4)
	h.spawn("root", "kid")
	h.must("kid", schema.TypeTextDelta, `{"text":"abc"}`)
	for _, w := range all {
		w.wants(t, `{"seq":3,"type":"text.delta","child":"kid"}`, `{"seq":3,"sum":14}`)
	}
	if m := k.next(); m.On != "a" || m.seq != 1 || !strings.Contains(m.line, `"run_id":"kid"`) {
		t.Errorf("%s", m.raw)
	}
	h.must("root", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	for _, w := range all {
		w.wants(t, `{"sum":14}`)
	}
	if m := k.next(); m.Re != "ended" {
		t.Errorf("%s", m.raw)
	}
}

// countingLog counts what the hub asks.
type countingLog struct {
	*faultyLog
	heads, newest atomic.Int64
}

func (l *countingLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	l.heads.Add(1)
	return l.faultyLog.Head(ctx, key, lane)
}

func (l *countingLog) Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	l.newest.Add(1)
	return l.faultyLog.Newest(ctx, keys)
}

// TestWaitingCostsLittle has many clients wait for one run: they are parked on one view, the log is asked by the audit alone,
// once for all of them, and each costs what a silent stream does.
func TestWaitingCostsLittle(t *testing.T) {
	const clients = 300
	h := newHouse(t)
	log := &countingLog{faultyLog: h.log}
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log, AuditEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	waiting := newHouse(t, withSample, func(c *edge.Config) { c.Hub = hub })
	var taps []*tap
	for range clients {
		k := waiting.mustTap("ws", "/sample/later/feed?await", 0)
		if line, err := k.event(); err != nil || line != `{"after":0}` {
			t.Fatalf("%q %v", line, err)
		}
		taps = append(taps, k)
	}
	waiting.parked(clients)
	if v := waiting.srv.Census().Views; v != 1 {
		t.Errorf("%d views", v)
	}
	goroutines := runtime.NumGoroutine()
	heads, newest := log.heads.Load(), log.newest.Load()
	eventually(t, "the log is compared", func() bool { return log.newest.Load() > newest+20 })
	if n := log.heads.Load(); n != heads {
		t.Errorf("%d heads were asked for while nothing happened", n-heads)
	}
	if goroutines > clients {
		t.Errorf("%d goroutines for %d clients", goroutines, clients)
	}
	h.must("later", schema.TypeRunLifecycle, `{"state":"running"}`)
	for _, k := range taps {
		if line, err := k.event(); err != nil || !strings.HasPrefix(line, `{"seq":1,`) {
			t.Fatalf("%q %v", line, err)
		}
		_ = k.tcp.Close()
	}
	waiting.vacant()
}

// TestWaitingIsKeptAlive: a stream that waits shows signs of life, and begins in the moment in which its run does.
func TestWaitingIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		h := newHouseOn(t, ln, ln.client(), withSample)
		begun := time.Now()
		r := h.watch(h.client, "/sample/later/near?await")
		at := func(second int, want string) {
			t.Helper()
			got, err := r.next()
			if err != nil || !strings.Contains(got, want) || time.Since(begun) != time.Duration(second)*time.Second {
				t.Fatalf("after %v: %q, %v, want %q after %d s", time.Since(begun), got, err, want, second)
			}
		}
		at(0, "hello")
		at(5, "event: beat\n")
		at(10, "event: beat\n")
		time.Sleep(4 * time.Second)
		h.must("later", schema.TypeRunLifecycle, `{"state":"running"}`)
		at(14, `"seq":1`)
		at(19, "event: beat\n")
		r.resp.Body.Close()
	})
}

// TestWaitingEnds: a stream that waits ends as others do, and nothing of it is left.
func TestWaitingEnds(t *testing.T) {
	h := newHouse(t, withSample)
	f := h.feed(t, "GET", "/sample/later/feed?await", "")
	f.want(`hello {"after":0}`)
	gone := h.feed(t, "GET", "/sample/later/feed?await", "")
	gone.want(`hello {"after":0}`)
	_ = gone.resp.Body.Close()
	k := h.talk()
	if m := k.ask(nil, `{"do":"subscribe","id":"a","run":"later","await":true}`); m.Re != "subscribe" {
		t.Fatalf("%+v", m)
	}
	if m := k.ask(nil, `{"do":"unsubscribe","id":"a"}`); m.Re != "unsubscribe" || m.At != 0 {
		t.Fatalf("%+v", m)
	}
	h.parked(1)
	if a := h.do("HEAD", "/sample/later/feed?await", ""); a.status != http.StatusOK {
		t.Errorf("HEAD: %d", a.status)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	f.ends(`again {"why":"shutdown"}`)
}
