package demo

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentstream/schema"
)

// All scripts, and the picture that one of them shows. Times are in milliseconds of a script's own clock.
var (
	//go:embed scripts.json
	scriptsFile []byte
	//go:embed events.svg
	eventsPicture []byte
)

// script is one run of the demo.
type script struct {
	Name string `json:"name"`
	Gate string `json:"gate"` // of its plan
	User string `json:"user"` // what is asked for
	Plan *plan  `json:"plan"` // nil: it has none
	Acts []act  `json:"acts"`
}

// plan is a plan, with the text before it.
type plan struct {
	First []messagePart `json:"first"`
	Again string        `json:"again"` // instead, of another one; % is the reason for it
	Steps []planStep    `json:"steps"`
}

type planStep struct {
	ID     string   `json:"id"`
	Title  string   `json:"title"`
	Intent string   `json:"intent"`
	Tools  []string `json:"est_tools"`
	Cost   float64  `json:"est_cost_usd"`
}

// act is one call of the model, with the tools that it asks for, which run side by side. An empty one is a place where
// the agent obeys.
type act struct {
	Ask *struct { // a person, before
		ID      string   `json:"id"`
		Text    string   `json:"text"`
		Options []string `json:"options"`
	} `json:"ask"`
	Say   []messagePart `json:"say"`
	Tools []tool        `json:"tools"`
	Task  string        `json:"task"` // name of the task that the tools are
	Step  string        `json:"step"` // kind of the boundary behind; fan: one before the tools and one behind
	Rest  time.Duration `json:"rest"` // pause behind
}

// tool is a call and what it does: it prints lines, each after a while, and has a result, or an error; or it is a
// child.
type tool struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	After  time.Duration   `json:"after"` // before the first line, on top
	Every  time.Duration   `json:"every"`
	Prints []string        `json:"prints"`
	Result string          `json:"result"`
	Fails  string          `json:"fails"`
	Child  *struct {
		Name  string   `json:"name"`
		Tools []string `json:"tools"`
		Acts  []act    `json:"acts"`
	} `json:"child"`
}

// scripts returns all scripts. A file that cannot be read has none, which the tests find out.
func scripts() (all []script) {
	_ = json.Unmarshal(scriptsFile, &all)
	return all
}

// Scripts returns the names of the scripts, the default first: tour shows everything, plan waits for its plan
// to be approved, failure fails in every way, quick is over in two seconds.
func Scripts() (names []string) {
	for _, s := range scripts() {
		names = append(names, s.Name)
	}
	return names
}

// propose emits the script's plan, or another one where there is a reason for it.
func (a *actor) propose(why string) {
	s, p := a.s, a.s.script.Plan
	if s.plans++; s.plans == 1 {
		a.model(p.First...)
	} else {
		a.model(messagePart{Text: strings.Replace(p.Again, "%", why, 1)})
	}
	milli := 0.0
	for _, step := range p.Steps {
		milli += step.Cost * 1000
	}
	type proposed struct {
		ID    string     `json:"id"`
		Steps []planStep `json:"steps"`
		Cost  float64    `json:"est_total_cost_usd"`
	}
	a.try(func() error {
		return a.lane.Emit(s.ctx, schema.TypePlanProposal, struct {
			Plan proposed `json:"plan"`
			Gate string   `json:"planning_gate"`
		}{proposed{s.planID(), p.Steps, milli / 1000}, s.cfg.PlanningGate})
	})
	a.step("plan")
	a.wait(900 * time.Millisecond)
}

func (s *stage) planID() string { return fmt.Sprintf("plan_%d", s.plans) }
