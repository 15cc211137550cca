package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/internal/testkit"
	langgraphserve "agentstream/protocols/langgraph/serve"
	metisserve "agentstream/protocols/metis/serve"
	"agentstream/protocols/native"
	nimiserve "agentstream/protocols/nimi/serve"
	"agentstream/protocols/qoder"
	qoderserve "agentstream/protocols/qoder/serve"
)

// allStreams returns every stream of every protocol that a node speaks, and the protocol's name.
func allStreams() (list []walkedStream) {
	for _, p := range []protocol.Protocol{native.Protocol(), qoderserve.Protocol(qoder.Dialect{}),
		metisserve.Protocol(metisserve.Config{}),
		langgraphserve.Protocol(langgraphserve.Config{}), nimiserve.Protocol(nimiserve.Config{})} {
		info := p.Dialect.Info()
		for i := range p.Streams {
			list = append(list, walkedStream{Stream: p.Streams[i].Stream, dialect: info.Name})
		}
		for i := range p.Conversations {
			st := p.Conversations[i].Stream
			st.Transport = dialect.WebSocket
			list = append(list, walkedStream{Stream: st, dialect: info.Name})
		}
	}
	return list
}

// walkedStream is a stream that is opened twice: on a run that ends, and on one that goes on until its node goes away.
type walkedStream struct {
	dialect.Stream
	dialect string
	over    <-chan string // how the first ended
	open    <-chan string // and the second
}

// Ends, as clients hear of them.
const (
	endClean = "clean" // a body that is whole, close code 1000, status OK
	endCut   = "cut"   // a body that breaks off, close code 1001 or 1012, status CANCELLED
)

// walk opens streams on one server.
type walk struct {
	metis
	test *testing.T
	p    *proc
	conn *grpc.ClientConn
	// alone is an edge that goes away without the worker: a worker that ends, ends its answers, and so their streams.
	alone *grpc.ClientConn
}

// run begins a run that any protocol shows, and a function that ends it.
func (w *walk) run() (id string, end func()) {
	id = w.create()
	postLog(w.test, w.p.url("/v1/agent/runs/"+id+"/events"), `run.lifecycle {"state":"running","reason":null}`)
	return id, func() {
		postLog(w.test, w.p.url("/v1/agent/runs/"+id+"/events"), `run.lifecycle {"state":"done","reason":null}`)
	}
}

// watch opens a stream. over: on something that ends, by itself or by the function that it returns.
func (w *walk) watch(st walkedStream, over bool) (ended <-chan string, end func()) {
	run, end := w.run()
	said := map[bool]string{true: "hello", false: "think long"}[over]
	body := `{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"` + said + `"}]}}`
	switch {
	case st.Transport == dialect.GRPC:
		return w.grpc(st, run, over), end
	case st.dialect == "metis":
		c := w.attach(run)
		c.bare = true
		if code := c.subscribe(metisAll, "", false); code != "" {
			w.t.Fatal(code)
		}
		return closeOf(c), end
	case st.Transport == dialect.WebSocket:
		c := w.dial(run, "ws://"+w.p.addr+strings.ReplaceAll(pathOf(st), "{run}", run))
		if c.bare = true; st.dialect != "native" {
			c.write(opText, []byte(`{"id":1,"method":"subscription.subscribe","params":{"channels":["lifecycle"]}}`))
		}
		return closeOf(c), end
	case st.dialect == "langchain" && strings.Contains(st.Pattern, "/runs/"): // of one answer in a thread
		run, end = fmt.Sprintf("walk-%s-%t", strings.NewReplacer("/", "-", ".", "-").Replace(st.Name), over), func() {}
		if strings.HasPrefix(st.Pattern, "GET") {
			answer := w.begin("/threads/"+run+"/commands", `{"id":1,"method":"run.start","params":`+body+`}`)
			return w.sse(st, "", run, answer), end
		}
		return w.sse(st, strings.Replace(body, "{", `{"if_not_exists":"create",`, 1), run, ""), end
	case len(st.Body) > 0:
		return w.sse(st, `{"channels":["lifecycle"]}`, run, ""), end
	}
	return w.sse(st, "", run, qoder.ThreadID(run, "")), end
}

// begin has an agent answer in a thread, and returns the id of that.
func (w *walk) begin(path, body string) string {
	resp, err := http.Post(w.p.url(path), "application/json", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Result struct {
			Run string `json:"run_id"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.Result.Run == "" {
		w.t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
	}
	return a.Result.Run
}

func pathOf(st walkedStream) string {
	_, path, _ := strings.Cut(st.Pattern, " ")
	return path
}

// sse opens a stream of server-sent events. part is what is named within the run.
func (w *walk) sse(st walkedStream, body, run, part string) <-chan string {
	method, path, _ := strings.Cut(st.Pattern, " ")
	path = strings.NewReplacer("{run}", run, "{part}", part, "{thread}", part).Replace(path)
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.p.url(path), strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		w.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return endOf(func() string {
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return endCut
		}
		return endClean
	})
}

// endOf waits for an end beside the test.
func endOf(wait func() string) <-chan string {
	ended := make(chan string, 1)
	go func() { ended <- wait() }()
	return ended
}

func closeOf(c *metisConn) <-chan string {
	return endOf(func() string {
		for {
			var end *metisClosed
			if _, err := c.read(); errors.As(err, &end) {
				switch end.code {
				case 1000:
					return endClean
				case 1001, 1012:
					return endCut
				}
				return end.Error()
			}
		}
	})
}

// grpc calls a method.
func (w *walk) grpc(st walkedStream, run string, over bool) <-chan string {
	var in proto.Message
	conn := w.conn
	for i := range runtimeKinds {
		if k := &runtimeKinds[i]; st.dialect == "runtime" && k.name == st.Name {
			in = k.ask(run, 0)
		}
	}
	switch st.Name {
	case "scenario":
		if in = textScenario("demo", "hello"); !over {
			in, conn = textScenario("demo/silent", "hello"), w.alone
		}
	case native.StreamGRPC:
		in = &runtimev1.SubscribeScenarioJobEventsRequest{JobId: run} // field 1, as there
	}
	if in == nil && !st.Publishes {
		w.t.Fatalf("%s: nobody knows how to ask for it", st.Name)
	}
	ctx := asApp(w.t.Context(), runtimeApp, "")
	open := func() (grpc.ClientStream, error) { return openRuntime(ctx, conn, pathOf(st), in) }
	if st.Publishes { // which goes on as long as its client may send
		open = func() (grpc.ClientStream, error) {
			return conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, pathOf(st))
		}
	}
	s, err := open()
	if err == nil {
		_, err = s.Header()
	}
	if err != nil {
		w.t.Fatalf("%s: %v", st.Pattern, err)
	}
	return endOf(func() string {
		for {
			switch err := s.RecvMsg(new(emptypb.Empty)); {
			case errors.Is(err, io.EOF):
				return endClean
			case status.Code(err) == codes.Canceled:
				return endCut
			case err != nil:
				return err.Error()
			}
		}
	})
}

// TestRuntimeWalk opens every stream of every dialect on what ends, and on what goes on until the node goes away. How
// each ends is what its mode says: A, B and C end cleanly with what they are of, D never does; a node that goes away
// cuts all but exports.
func TestRuntimeWalk(t *testing.T) {
	beside(t)
	nats := testkit.FreeAddr(t)
	p := newProc(t, "dev", "--data", t.TempDir(), "--nats-listen", nats)
	p.start()
	alone := newProc(t, "edge", "--nats", "nats://"+nats)
	alone.start()
	w := &walk{metis: metisAt(t, p), test: t, p: p, conn: runtimeConn(t, p.addr), alone: runtimeConn(t, alone.addr)}
	all := allStreams()
	modes := map[string]int{}
	for i := range all {
		st := &all[i]
		modes[st.dialect+" "+string(st.Mode)]++
		var end func()
		st.over, end = w.watch(*st, true)
		st.open, _ = w.watch(*st, false)
		end()
	}
	hear := func(st walkedStream, what string, ended <-chan string, want string) {
		t.Helper()
		select {
		case got := <-ended:
			if got != want {
				t.Errorf("%s %s, of mode %c, %s: ended %s, want %s", st.dialect, st.Pattern, st.Mode, what, got, want)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s %s, of mode %c, %s: has not ended", st.dialect, st.Pattern, st.Mode, what)
		}
	}
	for _, st := range all {
		if st.Mode != dialect.ModeD {
			hear(st, "what it is of has ended", st.over, endClean)
		}
	}
	for _, node := range []*proc{alone, p} {
		if code := node.stop(); code != 0 {
			t.Errorf("the node ended with %d", code)
		}
	}
	for _, st := range all {
		if st.Mode == dialect.ModeD {
			hear(st, "what it is of has ended", st.over, endCut)
		}
		if st.Mode == dialect.ModeC { // it is over as soon as it has begun
			hear(st, "the node goes away", st.open, endClean)
			continue
		}
		hear(st, "the node goes away", st.open, endCut)
	}
	t.Logf("%d streams: %v", len(all), modes)
}
