package proxy_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/adapters/proxy"
	"agentstream/producers"
	"agentstream/schema"
)

// said is one message of a generated conversation.
type said struct {
	user    string
	model   bool // it is the assistant's
	text    string
	calls   []*made
	results []outcome
}

// made is a call that the model has made. What the log must say of it is input and output.
type made struct {
	id, local string // the provider's, and the one that the client writes in its place
	input     string
	output    string // "": it was never answered
}

type outcome struct {
	of     *made
	output string
	failed bool
}

// world is one run of generated conversations, whose true events are known.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	api   string
	ids   string // how calls are named: unique, constant, counted, rewritten, missing
	run   string
	edits bool // clients change the history
	mixed bool // each conversation goes by another API
	n     int  // requests so far
	made  []*made
	user  []string // what must be recorded of the user, in order
	send  func(w *world, status int, request, answer string)

	at    *rig // that the last request was sent to
	trace []string
}

// talk is one conversation of a world.
type talk struct {
	w     *world
	list  []said
	heard map[int]bool // messages of the user that must have been recorded
	cut   int          // messages that the client has dropped from the beginning
	scope string       // the response that the next request continues
	sent  int          // messages that the provider keeps
	api   string
}

var apis = map[string]string{
	"chat": "/v1/chat/completions", "responses": "/v1/responses", "continued": "/v1/responses",
	"messages": "/v1/messages", "gemini": "/v1beta/models/g:generateContent",
}

var worlds = flag.Int("worlds", 150, "how many runs of generated conversations are tried")

var names = []string{"chat", "responses", "continued", "messages", "gemini"}

func (w *world) pick(list ...string) string { return list[w.rng.IntN(len(list))] }

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// say adds a message of the user.
func (c *talk) say(text string) { c.list = append(c.list, said{user: text}) }

// ask sends the conversation and takes the answer into it.
func (c *talk) ask(calls int) {
	w := c.w
	c.announce()
	request := c.request()
	if w.chance(15) { // the provider fails, and the client tries again
		w.send(w, []int{529, 500, 429, 400}[w.rng.IntN(4)], request, `{"error":{"message":"not now"}}`)
		request = c.request()
	}
	answer, id := c.answer(calls), w.n
	w.send(w, 200, request, answer.render(w))
	if w.chance(10) { // the client did not like the answer, or did not get it
		answer, id = c.answer(calls), w.n
		w.send(w, 200, request, answer.render(w))
	}
	c.scope, c.sent = fmt.Sprintf("resp_%d", id), len(c.list)+1
	c.list = append(c.list, answer)
}

// announce notes what the request that is sent next must add.
func (c *talk) announce() {
	last := 0
	for i, m := range c.list {
		if m.model {
			last = i
		}
	}
	for i := last; i < len(c.list); i++ {
		m := c.list[i]
		if m.user != "" && !c.heard[i] {
			c.heard[i] = true
			c.w.user = append(c.w.user, m.user)
		}
		for _, o := range m.results {
			o.of.output = o.output
		}
	}
}

// answer makes what the model says next.
func (c *talk) answer(calls int) said {
	w := c.w
	m := said{model: true}
	if w.ids == "constant" && w.api != "messages" { // two calls of one message with one id are one call there
		calls = min(calls, 1)
	}
	if calls == 0 || w.chance(30) {
		m.text = fmt.Sprintf("answer %d", w.n)
	}
	for i := range calls {
		k := &made{id: fmt.Sprintf("call_%s_%d_%d", w.run, w.n, i)}
		switch w.ids {
		case "constant":
			k.id = "call_0"
		case "counted":
			k.id = fmt.Sprintf("call_%d", i)
		}
		k.local = k.id
		if w.ids == "rewritten" {
			k.local = fmt.Sprintf("local_%d_%d", w.n, i)
		}
		k.input = fmt.Sprintf(`{"n":%d,"q":"ü"}`, len(w.made))
		w.made = append(w.made, k)
		m.calls = append(m.calls, k)
	}
	return m
}

// work answers the calls of the newest answer. Now and then a part of the results comes first, and is refused.
func (c *talk) work() {
	w := c.w
	var all []outcome
	for _, k := range c.list[len(c.list)-1].calls {
		all = append(all, outcome{k, fmt.Sprintf("result %d", w.rng.IntN(3)), w.chance(20)})
	}
	if w.ids == "unique" || w.ids == "rewritten" || w.ids == "counted" {
		w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	if len(all) > 1 && w.chance(20) && w.api != "continued" {
		c.list = append(c.list, said{results: all[:1]})
		c.announce()
		w.send(w, 400, c.request(), `{"error":{"message":"results are missing"}}`)
		c.list = c.list[:len(c.list)-1]
	}
	c.list = append(c.list, said{results: all})
}

// aside makes a call beside the conversation.
func (c *talk) aside() {
	w := c.w
	side := &talk{w: w, heard: map[int]bool{}}
	switch w.rng.IntN(3) {
	case 0: // a title, a classification: with words of its own
		side.say(fmt.Sprintf("Title, try %d", w.n))
	case 1: // a router: with the user's first words
		side.say(c.list[0].user)
		side.heard[0] = true
	case 2: // a summary of everything
		if c.list[len(c.list)-1].calls != nil || w.api == "continued" {
			return
		}
		side.list, side.cut = slices.Clone(c.list), c.cut
		for i := range side.list {
			side.heard[i] = c.heard[i]
		}
		side.say(fmt.Sprintf("Summarize, try %d", w.n))
	}
	side.ask(0)
	for i := range c.list { // the summary has said it
		c.heard[i] = c.heard[i] || side.heard[i] && side.cut == c.cut && len(side.list) > len(c.list)
	}
}

// step goes on with a conversation.
func (c *talk) step() {
	w := c.w
	last := c.list[len(c.list)-1]
	switch {
	case last.model && last.calls != nil:
		c.work()
		if w.chance(10) {
			c.say("and hurry")
		}
	case last.model:
		c.say(w.pick("yes", "go on", fmt.Sprintf("what about %d?", w.n)))
	}
	if w.api != "continued" && len(c.list)-c.cut > 5 && w.chance(15) {
		c.cut = w.cutAt(c)
	}
	c.ask([]int{0, 1, 1, 2, 3}[w.rng.IntN(5)])
}

// cutAt returns where a client that drops the oldest messages begins: never between a call and its result.
func (w *world) cutAt(c *talk) int {
	at := c.cut + 1 + w.rng.IntN(len(c.list)-c.cut-3)
	for at > c.cut && c.list[at].results != nil {
		at--
	}
	return at
}

// generate runs a world.
func (w *world) generate() {
	var talks []*talk
	for i := range 1 + w.rng.IntN(2) {
		if w.mixed {
			w.api = w.pick(names...)
		}
		c := &talk{w: w, heard: map[int]bool{}, api: w.api}
		c.say(fmt.Sprintf("Build %d.", i))
		c.ask(1)
		talks = append(talks, c)
	}
	for range 4 + w.rng.IntN(6) {
		c := talks[w.rng.IntN(len(talks))]
		w.api = c.api
		if w.chance(25) {
			c.aside()
		}
		c.step()
	}
}

// check compares a world with what the log holds.
func (w *world) check(events []schema.Event) {
	w.t.Helper()
	var user []string
	calls, outputs := make([]string, len(w.made)), map[string]int{}
	for _, e := range events {
		var p struct {
			ID      string `json:"call_id"`
			Input   struct{ N int }
			Output  json.RawMessage
			Detail  json.RawMessage `json:"error_detail"`
			Content []struct{ Text string }
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			w.t.Fatal(err)
		}
		switch {
		case e.Type == schema.TypeMessageEnd && e.Actor == "user":
			user = append(user, p.Content[0].Text)
		case e.Type == schema.TypeToolStart:
			if at, open := outputs[p.ID]; open {
				w.t.Errorf("%s: call %s begins while another of that id is open: %s", w.run, p.ID, calls[at])
			}
			outputs[p.ID] = p.Input.N
		case e.Type == schema.TypeToolEnd:
			at, open := outputs[p.ID]
			if !open {
				w.t.Errorf("%s: a result of no call: %s", w.run, e.Payload)
				continue
			}
			delete(outputs, p.ID)
			calls[at] = resultText(append(p.Output, p.Detail...))
		}
	}
	if w.ids == "unique" || w.ids == "rewritten" { // proxies store what they have when they have it
		slices.Sort(user)
		slices.Sort(w.user)
	}
	var want []string
	for _, k := range w.made {
		want = append(want, k.output)
	}
	if !slices.Equal(user, w.user) || !slices.Equal(calls, want) {
		w.t.Errorf("%s, %s, %s:\nuser  %q\nwant  %q\ncalls %q\nwant  %q\n%s", w.run, w.api, w.ids, user, w.user, calls,
			want, strings.Join(w.trace, "\n"))
		w.t.Log(story(events))
	}
}

// resultText finds the text of a result in the form of any API.
func resultText(raw []byte) string {
	i := strings.Index(string(raw), "result ")
	if i < 0 {
		return string(raw)
	}
	return string(raw[i : i+len("result 0")])
}

// TestGeneratedConversations: whatever the API, however calls are named, whatever stands beside a conversation, is
// repeated, fails, is cut off, and at whatever proxy a request arrives: the log has what happened, once.
func TestGeneratedConversations(t *testing.T) {
	var mu sync.Mutex
	answers := map[string]string{}
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "application/json")
		var status int
		_, _ = fmt.Sscan(req.Header.Get("X-Status"), &status)
		w.WriteHeader(status)
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(w, answers[req.Header.Get("X-Answer")])
	}))
	second := r.another()
	n := *worlds
	if testing.Short() {
		n = min(n, 50)
	}
	for seed := range n {
		rng := rand.New(rand.NewPCG(uint64(seed), 34))
		w := &world{t: t, rng: rng, run: fmt.Sprintf("run_%d", seed), api: names[seed%len(names)]}
		w.ids = w.pick("unique", "constant", "counted", "rewritten")
		if w.api == "continued" {
			w.ids = w.pick("unique", "constant", "counted")
		}
		if w.api == "gemini" {
			w.ids = w.pick("unique", "missing", "constant", "counted")
		}
		w.edits, w.mixed = seed%3 == 1, seed%7 == 3
		if w.mixed {
			w.ids = w.pick("unique", "counted")
		}
		w.send = func(w *world, status int, request, answer string) {
			key := fmt.Sprintf("%s_%d", w.run, w.n)
			mu.Lock()
			answers[key] = answer
			mu.Unlock()
			at := r
			switch w.rng.IntN(6) {
			case 0:
				at = second
			case 1:
				second.stop()
				second = r.another()
				at = second
			}
			if at != w.at {
				r.calls(w.run, w.n) // a proxy knows of a call at another one when the log has it, which may be after its answer
			}
			w.at = at
			w.n++
			w.trace = append(w.trace, fmt.Sprintf("%d second=%v %d %s\n    %s", w.n-1, at == second, status, request, answer))
			_, got := at.post(apis[w.api], request, proxy.HeaderRun, w.run, "X-Answer", key, "X-Status", fmt.Sprint(status))
			if string(got) != answer {
				t.Errorf("the client got %q", got)
			}
		}
		w.generate()
		w.check(r.calls(w.run, w.n))
		if t.Failed() {
			return
		}
	}
}

// another starts one more proxy to the same log and upstream.
func (r *rig) another() *rig {
	r.t.Helper()
	return begin(r.t, &rig{t: r.t, nats: r.nats, log: r.log, said: &quiet{}}, r.upstreams, func(c *proxy.Config) {
		c.Open = proxy.Publishers(producers.Config{Log: r.log})
	})
}
