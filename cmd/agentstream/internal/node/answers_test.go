package node

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/protocols/agui"
	"agentstream/protocols/aisdk"
	"agentstream/protocols/metis"
	metisserve "agentstream/protocols/metis/serve"
	"agentstream/protocols/native"
	"agentstream/protocols/otlp"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// asking is a run in which an agent asks about its calls, and which of its questions wait by the rules that people
// read: until the answer, the end of the call, a cancelled turn, or the end of the run.
type asking struct {
	n     *edgetest.Node
	run   string
	rng   *rand.Rand
	known []string // every question that was ever asked
	waits map[string]bool
	said  schema.Seq            // newest message of a person
	turn  schema.Seq            // where the turn under way has started; 0: none is
	from  map[string]schema.Seq // message of a person after which it was asked
	idle  map[string]bool       // what waited when its turn ended: a cancel ends it at once
	told  map[string]bool       // what waited when its turn was told to cancel
	over  bool
}

func (a *asking) tell(typ, format string, args ...any) {
	a.n.Say(a.run, edgetest.Event(typ, fmt.Sprintf(format, args...)))
}

func (a *asking) last() schema.Seq {
	head, err := a.n.Nodes.Log.Head(context.Background(), edgetest.Key(a.run), "")
	if err != nil {
		a.n.T.Fatal(err)
	}
	return head.Last
}

// begin lets a person say something, and a turn start.
func (a *asking) begin() {
	if a.turn == 0 {
		a.tell(schema.TypeCommandMessage, `{"content":"go","message_id":"m%d"}`, a.last())
		a.said = a.last()
		a.tell(schema.TypeRunLifecycle, `{"state":"running"}`)
		a.tell(schema.TypeTurnStart, `{"turn_id":"t%d"}`, a.last())
		a.turn, a.over = a.last(), false
	}
}

// ask asks about a new call.
func (a *asking) ask() {
	a.begin()
	id := fmt.Sprintf("q%d", len(a.known))
	a.tell(schema.TypeToolStart, `{"call_id":"c%s","tool":"tool_%s","input":{}}`, id, id)
	a.tell(schema.TypeInputRequested, `{"request_id":%q,"call_id":"c%s","prompt":"May I?"}`, id, id)
	a.known, a.waits[id], a.from[id] = append(a.known, id), true, a.said
}

// step lets something happen that may end questions.
func (a *asking) step() {
	switch kind := a.rng.IntN(14); {
	case kind == 0 && a.turn > 0:
		a.tell(schema.TypeTurnEnd, `{"turn_id":"t%d","stop_reason":"cancelled"}`, a.turn-1)
		clear(a.waits)
		a.turn = 0
	case kind == 1 && a.turn > 0:
		a.tell(schema.TypeTurnEnd, `{"turn_id":"t%d","stop_reason":"end_turn"}`, a.turn-1)
		maps.DeleteFunc(a.waits, func(id string, _ bool) bool { return a.told[id] })
		a.turn, a.idle = 0, maps.Clone(a.waits)
	case kind == 10 && !a.over:
		a.tell("command.cancel", `{"interrupt":true}`)
		maps.DeleteFunc(a.waits, func(id string, _ bool) bool { return a.idle[id] })
		a.told = maps.Clone(a.waits)
	case kind == 11 && len(a.waits) > 0:
		id := slices.Sorted(maps.Keys(a.waits))[0]
		a.tell(schema.TypeInputAnswered, `{"request_id":%q,"answer":true}`, id)
		delete(a.waits, id)
	case kind == 2 && !a.over:
		a.tell(schema.TypeRunLifecycle, `{"state":%q}`, []string{"aborted", "done", "error"}[a.rng.IntN(3)])
		clear(a.waits)
		a.turn, a.over = 0, true
	case kind < 5 && len(a.waits) > 0:
		id := slices.Sorted(maps.Keys(a.waits))[0]
		a.tell(schema.TypeToolEnd, `{"call_id":"c%s","ok":true}`, id)
		delete(a.waits, id)
	default:
		a.ask()
	}
}

// answers returns the answers that the run has.
func (a *asking) answers() (ids []string) {
	for pack, err := range a.n.Nodes.Log.Packs(context.Background(), edgetest.Key(a.run), 0, schema.MaxSeq) {
		if err != nil {
			a.n.T.Fatal(err)
		}
		for r := range pack.Records(0) {
			if string(r.Type) == "command.answer" {
				ids = append(ids, string(schema.Field(r.Payload(), "request_id"))+string(schema.Field(r.Payload(), "call_id")))
			}
		}
	}
	return ids
}

// answerWay is a way to answer a question.
type answerWay struct {
	// send answers, and returns the status, or 0 of a refusal that has none.
	send func(a *asking, id string) (status int, body string)
	// takes reports whether the way takes answers to what waits; nil: it always does.
	takes func(a *asking) bool
}

// post sends a body, and reads the answer unless it is a stream, which goes on.
func (a *asking) post(path, body string) (int, string) {
	ctx, stop := context.WithCancel(a.n.T.Context())
	defer stop()
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+a.n.Host+path, strings.NewReader(body))
	if err != nil {
		a.n.T.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := a.n.HTTP.Do(r)
	if err != nil {
		a.n.T.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 4096)
	n, _ := resp.Body.Read(b)
	return resp.StatusCode, string(b[:n])
}

var worlds = flag.Int("worlds", 60, "how many runs with questions are made")

var answerWays = map[string]answerWay{
	"command": {send: func(a *asking, id string) (int, string) {
		return a.post("/v1/agent/runs/"+a.run+"/answer", answerTo(id))
	}},
	"event": {send: func(a *asking, id string) (int, string) {
		return a.post("/v1/agent/runs/"+a.run+"/events", `{"type":"command.answer","payload":`+answerTo(id)+`}`)
	}},
	"gRPC":      {send: publishAnswer},
	"WebSocket": {send: sendAnswer},
	"thread": {send: func(a *asking, id string) (int, string) {
		return a.post("/threads/"+a.run+"/runs", fmt.Sprintf(`{"assistant_id":"a","command":{"resume":{%q:true}}}`, id))
	}},
	"session": {send: func(a *asking, id string) (int, string) {
		body := fmt.Sprintf(`{"events":[{"type":"user.tool_confirmation","tool_use_id":%q,"result":"allow"}]}`, a.use(id))
		return a.post(qoder.BaseCloud+"/sessions/"+a.run+"/events", body)
	}},
	"metis": {send: func(a *asking, id string) (int, string) {
		path := metisserve.Base + "/sessions/" + a.run + "/turns/" + metis.TurnID(a.run, a.said) + "/confirmations/" + id
		return a.post(path, `{"decision":"allow"}`)
	}, takes: func(a *asking) bool { return a.turn > 0 }},
	"AI SDK": {send: func(a *asking, id string) (int, string) {
		message := fmt.Sprintf("%s-%d", a.run, a.from[id])
		return a.post(aisdk.Base, fmt.Sprintf(`{"id":%q,"trigger":"submit-message","messageId":%q,
			"messages":[{"id":%q,"role":"assistant","parts":[{"type":"dynamic-tool","state":"approval-responded",
			"approval":{"id":%q,"approved":true}}]}]}`, a.run, message, message, id))
	}},
	"AG-UI": {send: func(a *asking, id string) (int, string) {
		return a.post(agui.Base, fmt.Sprintf(`{"threadId":%q,"runId":"r-%s","messages":[],"tools":[],"context":[],"state":{},
			"forwardedProps":{},"resume":[{"interruptId":%q,"status":"resolved","payload":{"approved":true}}]}`, a.run, id, id))
	}},
}

// answerTo is the payload of an answer.
func answerTo(id string) string { return fmt.Sprintf(`{"request_id":%q,"answer":true}`, id) }

// use returns the id of the tool use that a session shows of a question's call.
func (a *asking) use(id string) string {
	var page struct{ Data []struct{ ID, Name string } }
	reply := a.n.Do("GET", qoder.BaseCloud+"/sessions/"+a.run+"/events?limit=100&order=desc", "")
	if err := json.Unmarshal([]byte(reply.Body), &page); err != nil {
		a.n.T.Fatalf("%v: %s", err, reply.Body)
	}
	for _, e := range page.Data {
		if e.Name == "tool_"+id {
			return e.ID
		}
	}
	return "nobody"
}

// publishAnswer sends an answer as a producer does.
func publishAnswer(a *asking, id string) (int, string) {
	conn, err := net.Dial("tcp", a.n.Host)
	if err != nil {
		a.n.T.Fatal(err)
	}
	defer conn.Close()
	var e []byte
	for number, text := range map[protowire.Number]string{3: "command.answer", 4: a.run, 13: answerTo(id)} {
		e = protowire.AppendString(protowire.AppendTag(e, number, protowire.BytesType), text)
	}
	m := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), e)
	r, err := edgetest.CallRaw(conn, "/agent.v1.AgentIngest/Publish", m)
	if err != nil {
		a.n.T.Fatal(err)
	}
	<-r.Done()
	return 0, fmt.Sprintf("%s %q", r.Trailer, r.Messages())
}

// sendAnswer sends an answer over a WebSocket of a producer, and returns the first message that comes.
func sendAnswer(a *asking, id string) (int, string) {
	conn, err := net.Dial("tcp", a.n.Host)
	if err != nil {
		a.n.T.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", edgetest.PublishPath, a.n.Host)
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		a.n.T.Fatalf("%v, %v", resp, err)
	}
	line := fmt.Sprintf(`{"run_id":%q,"type":"command.answer","payload":%s}`, a.run, answerTo(id))
	if _, err := conn.Write(edgetest.ClientFrame(0x81, line)); err != nil {
		a.n.T.Fatal(err)
	}
	for {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:2]); err != nil {
			a.n.T.Fatal(err)
		}
		size := int(head[1])
		if size == 126 {
			_, _ = io.ReadFull(in, head[2:])
			size = int(binary.BigEndian.Uint16(head[2:]))
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(in, text); err != nil {
			a.n.T.Fatal(err)
		}
		if head[0] == 0x81 {
			return 0, string(text)
		}
	}
}

// TestAnswersOnEveryWay: whichever way it comes, an answer is taken for what waits, and for nothing else: not for what
// was answered by any way, cancelled, ended, asked in another run or never, nor in a run that has ended or has begun
// anew. A refusal names what waits.
func TestAnswersOnEveryWay(t *testing.T) {
	all, f := edgetest.Share(), &ListenFlags{}
	n := all.Start(t, native.Protocol(), func(c *edge.Config) { c.Protocols = f.protocols(otlp.New(otlp.Config{})) })
	names := slices.Sorted(maps.Keys(answerWays))
	n.Say("neighbour", planted(false)...)
	n.Say("neighbour", edgetest.Event(schema.TypeInputRequested, `{"request_id":"q999"}`))
	neighbour := len(n.Types("neighbour"))
	taken, refused := map[string]int{}, map[string]int{}
	for seed := range uint64(*worlds) {
		a := &asking{n: n, run: fmt.Sprintf("asking_%d", seed), rng: rand.New(rand.NewPCG(seed, 35))}
		a.waits, a.from = map[string]bool{}, map[string]schema.Seq{}
		a.tell(schema.TypeSessionCreated, `{"agent":"a","workspace_path":"/w"}`)
		a.begin()
		for range 30 {
			a.step()
			a.answer(t, names[a.rng.IntN(len(names))], taken, refused)
		}
	}
	for _, name := range names {
		if taken[name] < 5 || refused[name] < 5 {
			t.Errorf("%s: %d answers were taken, %d refused: the test sees little", name, taken[name], refused[name])
		}
	}
	if len(n.Types("neighbour")) != neighbour {
		t.Error("another run has got answers")
	}
	t.Log(taken, refused)
}

// answer sends an answer to any question that was ever asked, or to none, and checks what becomes of it.
func (a *asking) answer(t *testing.T, name string, taken, refused map[string]int) {
	t.Helper()
	id := "q999"
	if k := len(a.known); k > 0 && a.rng.IntN(6) > 0 {
		id = a.known[max(0, k-1-a.rng.IntN(6))]
	}
	way, before, last := answerWays[name], a.answers(), a.last()
	status, body := way.send(a, id)
	added := a.answers()[len(before):]
	want := a.waits[id] && (way.takes == nil || way.takes(a))
	switch {
	case status >= 500:
		t.Errorf("%s, %s: %d %s", a.run, name, status, body)
	case want && (len(added) != 1 || !strings.Contains(added[0], id)):
		t.Errorf("%s, %s: the answer to %s, which waits, made %q: %d %s", a.run, name, id, added, status, body)
	case !want && a.last() != last:
		t.Errorf("%s, %s: the answer to %s, which does not wait, made %q: %d %s", a.run, name, id, added, status, body)
	}
	if !want && status != http.StatusOK {
		a.checkRefusal(name, id, status, body)
	}
	if want {
		delete(a.waits, id)
		taken[name]++
	} else {
		refused[name]++
	}
}

// questionID is an id of a question, or of the tool use that a session shows of its call.
var questionID = regexp.MustCompile(`\bq\d+\b|evt_[0-9a-f]+`)

// checkRefusal holds that a refusal of an answer names what waits, and nothing else.
func (a *asking) checkRefusal(name, id string, status int, body string) {
	a.n.T.Helper()
	var got, want []string
	for _, named := range questionID.FindAllString(body, -1) {
		if named != id {
			got = append(got, named)
		}
	}
	for other := range a.waits {
		switch {
		case other == id:
		case name == "session":
			want = append(want, a.use(other))
		default:
			want = append(want, other)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) <= 8 && !slices.Equal(got, want) {
		a.n.T.Errorf("%s, %s: a refusal of %s names %q, want %q: %d %s", a.run, name, id, got, want, status, body)
	}
}
