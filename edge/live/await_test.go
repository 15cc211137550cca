package live_test

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
	"agentstream/edge/edgetest"
	"agentstream/fanout"
	"agentstream/schema"
)

// watcher is a client of the sample over some transport: next returns the data of the next frame, io.EOF at a clean
// end.
type watcher struct {
	name string
	next func() (string, error)
}

// openWatchers opens the sample's stream of a run in each way that there is, at a node.
func openWatchers(h *edgetest.House, t *testing.T, run string) (all []watcher) {
	t.Helper()
	f := h.Feed(t, "GET", "/sample/"+run+"/feed?await", "")
	p := h.Feed(t, "POST", "/sample/look", `{"run":"`+run+`","await":true}`)
	for name, f := range map[string]*edgetest.Feed{"GET": f, "POST": p} {
		all = append(all, watcher{name, func() (string, error) { s, err := f.Next(); return s.Data, err }})
	}
	s := h.MustTap("ws", "/sample/"+run+"/feed?await", 0, "Sec-WebSocket-Protocol", "sample")
	all = append(all, watcher{"WebSocket", func() (string, error) {
		line, err := s.Answer()
		if errors.Is(err, edgetest.ErrClosed) && s.Code == 1000 {
			err = io.EOF
		}
		return line, err
	}})
	return append(all, watcher{"gRPC", watchRPC(h, t, `{"run":"`+run+`","await":true}`)})
}

// watchRPC opens the sample's stream over gRPC.
func watchRPC(h *edgetest.House, t *testing.T, question string) func() (string, error) {
	t.Helper()
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
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

// TestStreamAwaitsItsRun opens streams of a run that is not there, over every transport, on two nodes, and as
// subscriptions: they begin and are silent, and get all of the run when it begins. To everybody else there is no such
// run until then, and a run of that name of another tenant is none of theirs.
func TestStreamAwaitsItsRun(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	other := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.Hub = h.Hub })
	var all []watcher
	for _, at := range []*edgetest.House{h, other} {
		all = append(all, openWatchers(at, t, "later")...)
		k := at.Talk()
		if m := k.Ask(nil, `{"do":"subscribe","id":"a","run":"later","await":true}`); m.Re != "subscribe" || m.At != 0 {
			t.Fatalf("%+v", m)
		}
		all = append(all, watcher{"subscription", func() (string, error) {
			m := k.Next()
			return m.Text, nil
		}})
		if m := k.Ask(nil, `{"do":"subscribe","id":"b","run":"later"}`); m.Error != "NOT-FOUND" {
			t.Errorf("a subscription that does not wait: %+v", m)
		}
	}
	for _, w := range all {
		if w.name != "subscription" {
			w.wants(t, `{"after":0}`)
		}
	}
	awaitParked(h, 4) // gRPC is never
	awaitParked(other, 4)
	for _, path := range []string{"/sample/later/feed", "/v1/agent/runs/later/stream",
		"/sample/later/feed?await=&only=x"} {
		if a := h.Do("GET", path, ""); a.Status != 404 && a.Status != 400 {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	h.Must("later", schema.TypeRunLifecycle, `{"state":"running"}`, edgetest.TenantHeader, "globex")
	h.Must("later", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.Must("later", schema.TypeTextDelta, `{"text":"abc"}`)
	for _, w := range all {
		if w.name != "subscription" {
			w.wants(t, `{"seq":1,"type":"run.lifecycle","child":""}`, `{"seq":2,"type":"text.delta","child":""}`,
				`{"seq":2,"sum":14}`)
			continue
		}
		for seq := range 2 {
			if line, err := w.next(); err != nil || !strings.Contains(line, fmt.Sprintf(`"seq":%d,`, seq+1)) ||
				!strings.Contains(line, `"run_id":"later"`) {
				t.Fatalf("%v %s", err, line)
			}
		}
	}
	h.Must("later", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	for _, w := range all {
		if w.name == "subscription" {
			continue
		}
		w.wants(t, `{"seq":3,"type":"run.lifecycle","child":""}`)
		if got, err := w.next(); err != io.EOF { // it is not wrapped
			t.Errorf("%s: %q %v behind the end", w.name, got, err)
		}
	}
	for _, w := range openWatchers(h, t, "later") { // what is there is not waited for
		w.wants(t, `{"after":0}`, `{"seq":1,"type":"run.lifecycle","child":""}`)
	}
	for _, bad := range []string{`{"run":"later2","await":true,"last":"0000"}`, `{"run":"../x","await":true}`,
		`{"run":"a b","await":true}`} {
		if a := h.Do("POST", "/sample/look", bad, "Content-Type", "application/json"); a.Status != 400 {
			t.Errorf("%s: %d %s", bad, a.Status, a.Body)
		}
	}
	if logs := h.Logs.String(); strings.Contains(logs, `"level":"ERROR"`) {
		t.Error(logs)
	}
}

// TestAwaitedChild: an id that is waited for becomes that of a child. Its stream goes on as the child's, over every
// transport, without another beginning.
func TestAwaitedChild(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	h.Must("root", schema.TypeRunLifecycle, `{"state":"running"}`)
	var all []watcher
	for _, w := range openWatchers(h, t, "kid") {
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
	k := h.Talk()
	if m := k.Ask(nil, `{"do":"subscribe","id":"a","run":"kid","await":true}`); m.Re != "subscribe" {
		t.Fatalf("%+v", m)
	}
	awaitParked(h, 4)
	h.Spawn("root", "kid")
	h.Must("kid", schema.TypeTextDelta, `{"text":"abc"}`)
	for _, w := range all {
		w.wants(t, `{"seq":3,"type":"text.delta","child":"kid"}`, `{"seq":3,"sum":14}`)
	}
	if m := k.Next(); m.On != "a" || m.Seq != 1 || !strings.Contains(m.Text, `"run_id":"kid"`) {
		t.Errorf("%s", m.Raw)
	}
	h.Must("root", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	for _, w := range all {
		if got, err := w.next(); err != io.EOF { // it is not wrapped
			t.Errorf("%s: %q %v behind the end", w.name, got, err)
		}
	}
	if m := k.Next(); m.Re != "ended" {
		t.Errorf("%s", m.Raw)
	}
}

// countingLog counts what the hub asks.
type countingLog struct {
	*edgetest.FaultyLog
	heads, newest atomic.Int64
}

func (l *countingLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	l.heads.Add(1)
	return l.FaultyLog.Head(ctx, key, lane)
}

func (l *countingLog) Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	l.newest.Add(1)
	return l.FaultyLog.Newest(ctx, keys)
}

// TestWaitingCostsLittle has many clients wait for one run: they are parked on one view, the log is asked by the audit
// alone, once for all of them, and each costs what a silent stream does.
func TestWaitingCostsLittle(t *testing.T) {
	const clients = 300
	h := edgetest.NewHouse(t)
	log := &countingLog{FaultyLog: h.Log}
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log, AuditEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	waiting := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.Hub = hub })
	var taps []*edgetest.Tap
	for range clients {
		k := waiting.MustTap("ws", "/sample/later/feed?await", 0)
		if line, err := k.Event(); err != nil || line != `{"after":0}` {
			t.Fatalf("%q %v", line, err)
		}
		taps = append(taps, k)
	}
	awaitParked(waiting, clients)
	if v := waiting.Server.Census().Views; v != 1 {
		t.Errorf("%d views", v)
	}
	goroutines := runtime.NumGoroutine()
	heads, newest := log.heads.Load(), log.newest.Load()
	edgetest.Eventually(t, "the log is compared", func() bool { return log.newest.Load() > newest+20 })
	if n := log.heads.Load(); n != heads {
		t.Errorf("%d heads were asked for while nothing happened", n-heads)
	}
	if goroutines > clients {
		t.Errorf("%d goroutines for %d clients", goroutines, clients)
	}
	h.Must("later", schema.TypeRunLifecycle, `{"state":"running"}`)
	for _, k := range taps {
		if line, err := k.Event(); err != nil || !strings.HasPrefix(line, `{"seq":1,`) {
			t.Fatalf("%q %v", line, err)
		}
		_ = k.Tcp.Close()
	}
	waiting.Vacant()
}

// TestWaitingIsKeptAlive: a stream that waits shows signs of life, and begins in the moment in which its run does.
func TestWaitingIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		h := edgetest.NewHouseOn(t, ln, ln.Client(), edgetest.WithSample)
		begun := time.Now()
		r := h.Watch(h.Client, "/sample/later/near?await")
		at := func(second int, want string) {
			t.Helper()
			got, err := r.Next()
			if err != nil || !strings.Contains(got, want) || time.Since(begun) != time.Duration(second)*time.Second {
				t.Fatalf("after %v: %q, %v, want %q after %d s", time.Since(begun), got, err, want, second)
			}
		}
		at(0, "hello")
		at(15, ": keepalive")
		at(30, ": keepalive")
		time.Sleep(4 * time.Second)
		h.Must("later", schema.TypeRunLifecycle, `{"state":"running"}`)
		at(34, `"seq":1`)
		at(49, ": keepalive")
		r.Resp.Body.Close()
	})
}

// TestWaitingEnds: a stream that waits ends as others do, and nothing of it is left.
func TestWaitingEnds(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	f := h.Feed(t, "GET", "/sample/later/feed?await", "")
	f.Want(`hello {"after":0}`)
	gone := h.Feed(t, "GET", "/sample/later/feed?await", "")
	gone.Want(`hello {"after":0}`)
	_ = gone.Resp.Body.Close()
	k := h.Talk()
	if m := k.Ask(nil, `{"do":"subscribe","id":"a","run":"later","await":true}`); m.Re != "subscribe" {
		t.Fatalf("%+v", m)
	}
	if m := k.Ask(nil, `{"do":"unsubscribe","id":"a"}`); m.Re != "unsubscribe" || m.At != 0 {
		t.Fatalf("%+v", m)
	}
	awaitParked(h, 1)
	if a := h.Do("HEAD", "/sample/later/feed?await", ""); a.Status != http.StatusOK {
		t.Errorf("HEAD: %d", a.Status)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	expectWholeFeed(f, `again {"why":"shutdown"}`)
}
