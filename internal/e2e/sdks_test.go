package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/adapters/provider/providertest"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// sdkAsked is what every library asks first.
const sdkAsked = "Grüße 🌍"

// sdkCase is one conversation of a library.
type sdkCase struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Run   string `json:"run,omitempty"` // "": the proxy makes one up
	End   bool   `json:"end,omitempty"` // every call says that the run ends with it
	Retry bool   `json:"retry,omitempty"`
	// Timeout is how long the library waits for an answer, in ms; 0: as long as it does by itself.
	Timeout int `json:"timeout,omitempty"`

	answers []answer
	once    bool // all answers are of one response, which is recorded once
	state   schema.RunState
	wrong   bool // the proxy takes no call with such a header
	refuses bool // the library throws what was streamed away: its input of a tool never became JSON
}

// sdkCall is what a library says of one call.
type sdkCall struct {
	Run      string
	Messages []sdkMessage
	Error    *sdkError
}

type sdkError struct {
	Type, Message, Run string
	Status             int
	Body               any
}

// sdkMessage is one message as the library has put it together. What its type does not say is nil.
type sdkMessage struct {
	ID, Model      string
	Text           string
	Thinking       *string
	Refusal        string
	Stop           string
	Usage, Content any
	Tools          []sdkTool
}

type sdkTool struct {
	ID, Name string
	Input    any
}

// The providers' own client libraries, which know nothing but another address, stream recorded answers
// through the proxy. What each of them has put together is what the run folds to.
func TestClientLibrariesThroughTheProxy(t *testing.T) {
	beside(t)
	node := needSDKs(t)
	nats := testkit.FreeAddr(t)
	server := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--nats-listen", nats)
	server.start()
	for way, log := range map[string][]string{"nats": {"--nats", "nats://" + nats}, "edge": {"--edge", server.url("")}} {
		t.Run(way, func(t *testing.T) {
			up := &models{answers: make(map[string][]answer)}
			at := up.start(t)
			proxy := newProc(t, "proxy", append(log, "--upstream", "anthropic="+at, "--upstream", "openai="+at,
				"--upstream", "gemini="+at, "--retry-hold", "0s")...)
			proxy.start()
			libraries := map[string][]sdkCase{"anthropic": anthropicCases(t), "openai": openaiCases(t), "gemini": geminiCases(t)}
			for script, cases := range libraries {
				up.expect(way, script, cases)
			}
			said := playAll(t, node, proxy.url(""), libraries)
			for script, cases := range libraries {
				for _, c := range cases {
					t.Run(c.Name, func(t *testing.T) { c.check(t, server.url("/v1/agent/runs/"), said[script][c.Name]) })
				}
			}
			for _, err := range up.left() {
				t.Error(err)
			}
			if log := proxy.log.String(); strings.Contains(log, sdkKey) || strings.Contains(log, "lacks a part") {
				t.Errorf("the proxy says\n%s", tail(log, 4000))
			}
		})
	}
}

// needSDKs makes sure that the recordings are there and the libraries installed, and returns Node.
func needSDKs(t *testing.T) string {
	t.Helper()
	providertest.Dir(t)
	node := program(t, "node")
	for _, name := range []string{"@anthropic-ai/sdk", "openai", "@google/genai"} {
		if _, err := os.Stat(filepath.Join(jsDir, "node_modules", name)); err != nil {
			missing(t, "the npm package "+name+" is not installed in "+jsDir)
		}
	}
	return node
}

// playAll runs all scripts at the same time and gives what each says of its cases.
func playAll(t *testing.T, node, proxy string, libraries map[string][]sdkCase) map[string]map[string][]sdkCall {
	t.Helper()
	all := make(map[string]map[string][]sdkCall)
	var mu sync.Mutex
	var running sync.WaitGroup
	for script, cases := range libraries {
		running.Go(func() {
			said, err := playCases(node, script, proxy, cases)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all[script] = said
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// playCases runs a script and gives what it says of each case.
func playCases(node, script, proxy string, cases []sdkCase) (map[string][]sdkCall, error) {
	list, err := json.Marshal(cases)
	if err != nil {
		return nil, err
	}
	cmd := command(node, script+".mjs")
	cmd.Dir = jsDir
	cmd.Env = append(os.Environ(), "PROXY="+proxy, "KEY="+sdkKey, "CASES="+string(list))
	complaints := &lockedBuffer{}
	cmd.Stderr = complaints
	kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", script, err, tail(string(out), 2000), tail(complaints.String(), 4000))
	}
	said := make(map[string][]sdkCall)
	for line := range strings.Lines(string(out)) {
		var one struct {
			Name  string
			Calls []sdkCall
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return nil, fmt.Errorf("%s: %w: %.300s", script, err, line)
		}
		said[one.Name] = one.Calls
	}
	return said, nil
}

// check compares what the library says with the run.
func (c *sdkCase) check(t *testing.T, runs string, calls []sdkCall) {
	var got []sdkMessage
	var fault *sdkError
	if len(calls) == 0 {
		t.Fatal("the library says nothing")
	}
	if c.wrong {
		if fault := calls[0].Error; fault == nil || fault.Status != http.StatusBadRequest ||
			!strings.Contains(fault.Message, "Agentstream-Run must have 1 to 128 of") {
			t.Errorf("the library says %+v", fault)
		}
		return
	}
	run := c.Run
	for _, call := range calls {
		got = append(got, call.Messages...)
		said := call.Run
		if call.Error != nil {
			fault = call.Error
			said += fault.Run
		}
		if run == "" {
			run = said
		}
		if said != "" && said != run {
			t.Errorf("the answer names the run %s, want %s", said, run)
		}
	}
	if run == "" {
		t.Fatalf("no answer names a run: %+v, %+v", calls, fault)
	}
	if c.once {
		if len(got) != 2 || !reflect.DeepEqual(got[0], got[1]) {
			t.Errorf("the library says %+v of one response", got)
		}
		one := *c
		one.answers, got, calls = one.answers[:1], got[:1], calls[:1]
		c = &one
	}
	lines, fold := c.settled(t, runs+run)
	c.checkRun(t, lines, fold)
	c.checkMessages(t, lines, fold, got)
	c.checkFailures(t, fold, fault)
	c.checkTools(t, fold, calls)
}

// settled reads the run when all its calls are stored.
func (c *sdkCase) settled(t *testing.T, run string) (lines []string, fold *schema.Fold) {
	t.Helper()
	eventually(t, 10*time.Second, run+" is stored", func() bool {
		resp, err := http.Get(run)
		if err != nil {
			return false
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return false
		}
		lines, fold = events(t, run), &schema.Fold{}
		ends := 0
		for _, line := range lines {
			rec, err := schema.ScanLine([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			fold.AddRecord(rec)
			if strings.Contains(line, `"type":"model.end"`) {
				ends++
			}
		}
		return ends >= len(c.answers) && fold.State == c.state
	})
	return lines, fold
}

// checkRun looks at what is around the messages.
func (c *sdkCase) checkRun(t *testing.T, lines []string, fold *schema.Fold) {
	t.Helper()
	var statuses []int
	for _, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == schema.TypeModelEnd {
			var end struct{ Status int }
			if err := json.Unmarshal(e.Payload, &end); err != nil {
				t.Fatal(err)
			}
			statuses = append(statuses, end.Status)
		}
		// The frame that a connection was cut in is kept.
		if e.Type == schema.TypeLoss || strings.Contains(e.Type, "bad_frame") && c.answers[0].after == whole ||
			strings.Contains(line, sdkKey) {
			t.Errorf("%.500s", line)
		}
	}
	var want []int
	for _, a := range c.answers {
		want = append(want, a.status)
	}
	if !slices.Equal(statuses, want) {
		t.Errorf("the calls ended with %v, want %v", statuses, want)
	}
	asked := 0
	for _, m := range fold.Messages {
		if m.Role == "user" {
			asked++
			if text := m.Blocks[0].Text.String(); text != sdkAsked {
				t.Errorf("the user says %q", text)
			}
		}
	}
	if asked != 1 {
		t.Errorf("the user's message is told %d times", asked)
	}
}
