package demo

import (
	"encoding/json"
	"fmt"
	"time"

	"agentstream/schema"
)

// script is one run of the demo.
type script struct {
	name     string
	gate     string // of its plan
	children []string
	tell     func(*actor)
	plan     func(a *actor, why string) // proposes one; why is the reason when it is not the first
}

// scripts are all there are.
func scripts() []script {
	return []script{
		{"tour", gatePreview, []string{"review", "costs"}, tour, tourPlan},
		{"plan", gateRequired, nil, archive, archivePlan},
		{"failure", gatePreview, []string{"fixer"}, failure, nil},
		{"quick", gatePreview, nil, quick, nil},
	}
}

// Scripts returns the names of the scripts, the default first: tour shows everything, plan waits for its plan
// to be approved, failure fails in every way, quick is over in two seconds.
func Scripts() []string {
	var names []string
	for _, s := range scripts() {
		names = append(names, s.name)
	}
	return names
}

// planStep is a step of a plan.
type planStep struct {
	ID     string   `json:"id"`
	Title  string   `json:"title"`
	Intent string   `json:"intent"`
	Tools  []string `json:"est_tools"`
	Cost   float64  `json:"est_cost_usd"`
}

// plan emits a plan of these steps.
func (a *actor) plan(steps ...planStep) {
	type plan struct {
		ID    string     `json:"id"`
		Steps []planStep `json:"steps"`
		Cost  float64    `json:"est_total_cost_usd"`
	}
	p := plan{ID: a.s.planID(), Steps: steps}
	milli := 0.0
	for _, s := range steps {
		milli += s.Cost * 1000
	}
	p.Cost = milli / 1000
	a.say(schema.TypePlanProposal, struct {
		Plan plan   `json:"plan"`
		Gate string `json:"planning_gate"`
	}{p, a.s.cfg.PlanningGate})
	a.step("plan")
	a.wait(900 * time.Millisecond)
}

func (s *stage) planID() string { return fmt.Sprintf("plan_%d", s.plans) }

// propose emits the script's plan, or another one where there is a reason for it.
func (a *actor) propose(why string) {
	a.s.plans++
	a.s.script.plan(a, why)
}

// input returns a tool's input.
func input(pairs ...any) string {
	out := []byte{'{'}
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		value, err := json.Marshal(pairs[i+1])
		if err != nil {
			value = []byte("null") // a script's own values are JSON
		}
		out = append(fmt.Appendf(out, "%q:", pairs[i]), value...)
	}
	return string(append(out, '}'))
}
