package demo

import (
	"encoding/json"
	"time"

	"agentstream/schema"
)

// story is the whole run. child is the run id of the reviewer.
func (s *stage) story(child string) {
	s.state("", schema.StatePlanning, "")
	s.question()
	s.plan("")
	s.approval()
	s.state("", schema.StateRunning, "")
	s.readNotes()
	s.turnOff()
	s.measure(child)
	s.turnOff()
	s.answer(s.ask())
	s.turnOff()
	s.done()
}

// done ends a turn, after what was said to the agent meanwhile has been answered.
func (s *stage) done() {
	for len(s.heard) > 0 && s.err == nil {
		s.reply()
	}
	s.step("done")
	s.flush()
	s.state("", schema.StateDone, "")
	s.flush()
}

func (s *stage) question() {
	s.actor = "user"
	m := s.message("", "user")
	m.begin(&block{kind: "text"})
	m.delta(schema.TypeTextDelta, "Which queue should carry the events of our agents: a ring in memory, a table that is polled, or a log?")
	m.endBlock(true)
	m.end("end_turn")
	s.actor = "agent"
	s.wait(600 * time.Millisecond)
}

// plan proposes one. why says why it is not the first.
func (s *stage) plan(why string) {
	s.plans++
	m := s.message("", "assistant")
	if s.plans == 1 {
		m.reasoning("Three designs, one question. What matters is what a reader sees after a crash, what a writer pays per event, " +
			"and what happens when a thousand people watch one run. I should read what the team wrote down, measure all three, " +
			"and have somebody else look for the way each of them fails.")
		m.text("I will compare the three designs in four steps.")
	} else {
		m.text("Another plan, then" + why + ". It still has four steps, but I will keep that in mind in each of them.")
	}
	m.end("end_turn")
	s.emit("", schema.TypePlanProposal, "plan", json.RawMessage(`{"id":"`+s.planID()+`","steps":[`+
		`{"id":"s1","title":"Read the notes on the three designs","intent":"research","est_tools":["read_file"],"est_cost_usd":0.002},`+
		`{"id":"s2","title":"Measure each under the same load","intent":"execute","est_tools":["bench"],"est_cost_usd":0.01},`+
		`{"id":"s3","title":"Have a reviewer look for failures","intent":"verify","est_tools":["read_file"],"est_cost_usd":0.004},`+
		`{"id":"s4","title":"Recommend one","intent":"report","est_tools":[],"est_cost_usd":0.003}],`+
		`"est_total_cost_usd":0.019}`), "planning_gate", s.cfg.PlanningGate)
	s.step("plan")
	s.wait(900 * time.Millisecond)
}

func (s *stage) readNotes() {
	m := s.message("", "assistant")
	m.text("First the notes.")
	m.call("call_notes", "read_file", `{"path":"notes/queues.md","lines":[1,60]}`)
	m.end("tool_use")
	c := running{"", "call_notes"}
	for _, line := range []string{
		"# Queues we could use\n", "ring   8,192 slots, one writer, readers by index\n", "table  INSERT, readers poll every 200 ms\n",
		"log    append only, compare-and-set on the last number\n", "open question: what does a reader that was away see?\n",
	} {
		s.wait(180 * time.Millisecond)
		s.output(c, line)
	}
	s.finish(c, "notes/queues.md: 5 lines", 940*time.Millisecond)
	s.step("tool-roundtrip")
	s.wait(300 * time.Millisecond)
}

// measure has three tools and a child at work at the same time.
func (s *stage) measure(child string) {
	m := s.message("", "assistant")
	m.reasoning("The open question is the one that decides. The benchmark takes a while, so the review can run beside it.")
	m.text("Now I measure all three at once, while a reviewer looks at how they fail.")
	designs := []string{"ring", "table", "log"}
	for _, d := range designs {
		m.call("call_"+d, "bench", `{"design":"`+d+`","writers":4,"readers":1000,"seconds":3}`)
	}
	m.end("tool_use")
	s.step("fan-out")
	s.spawn(child, "For each of ring, table and log: what does a reader see that was away for a minute, and after a crash?", "read_file")

	review := s.message(child, "assistant")
	s.together(s.benchmarks(designs), s.review(review))
	review.end("end_turn")
	s.emit(child, schema.TypeStepBoundary, "step_index", 0, "step_kind", "text-only", "checkpoint_id", nil)
	s.state(child, schema.StateDone, "")
	s.flush() // the parent goes on only when the child's end is stored
	s.step("fan-in")
	s.wait(500 * time.Millisecond)
}

// benchmarks tells the outputs of the three calls by turns.
func (s *stage) benchmarks(designs []string) []func() {
	lines := map[string][]string{
		"ring":  {"warm-up\n", "1 s: 9.8 M events/s\n", "2 s: 9.9 M events/s\n", "3 s: 9.9 M events/s, 212 readers were lapped\n"},
		"table": {"warm-up\n", "1 s: 11 k events/s\n", "2 s: 8 k events/s, 5,000 polls/s\n", "3 s: 7 k events/s, p99 204 ms\n"},
		"log":   {"warm-up\n", "1 s: 148 k events/s\n", "2 s: 151 k events/s\n", "3 s: 150 k events/s, p99 6 ms\n"},
	}
	var steps []func()
	for i := range 4 {
		for _, d := range designs {
			steps = append(steps, func() {
				s.wait(230 * time.Millisecond)
				s.output(running{"", "call_" + d}, lines[d][i])
			})
		}
	}
	results := map[string]string{
		"ring": "9.9 M/s; 212 of 1000 readers lost events", "table": "7 k/s; p99 204 ms; nothing lost", "log": "150 k/s; p99 6 ms; nothing lost",
	}
	for _, d := range []string{"log", "ring", "table"} {
		steps = append(steps, func() {
			s.wait(120 * time.Millisecond)
			s.finish(running{"", "call_" + d}, results[d], 3200*time.Millisecond)
		})
	}
	return steps
}

// review tells the child's message word by word.
func (s *stage) review(m *message) []func() {
	const text = "Ring: whoever was away for a minute was lapped and cannot know what is missing. " +
		"Table: nothing is missing, but every reader asks five times a second, also when nothing happens. " +
		"Log: a reader says the last number it has and gets the rest; after a crash the number after the last stored one is still the next."
	steps := []func(){func() { m.begin(&block{kind: "text"}) }}
	for _, w := range words(text) {
		steps = append(steps, func() {
			s.wait(textPace)
			m.delta(schema.TypeTextDelta, w)
		})
	}
	return append(steps, func() { m.endBlock(true) })
}

// together tells two lines of events side by side, each in its own order, so that both end at about
// the same time.
func (s *stage) together(a, b []func()) {
	done := 0
	for i, f := range b {
		f()
		for ; (done+1)*len(b) <= (i+1)*len(a); done++ {
			a[done]()
		}
	}
}

// answer recommends a design, for whoever the user said it is for.
func (s *stage) answer(audience string) {
	m := s.message("", "assistant")
	m.reasoning("The ring is the fastest and the only one that loses. The table loses nothing and costs most where nobody looks. " +
		"The log is fast enough by a factor of a hundred, and it answers the open question with one number.")
	m.text("**Take the log.**\n\n" +
		"| design | events/s | p99 | reader was away | after a crash |\n" +
		"|---|---|---|---|---|\n" +
		"| ring | 9,900,000 | <1 ms | loses events, silently | empty |\n" +
		"| table | 7,000 | 204 ms | complete | complete |\n" +
		"| log | 150,000 | 6 ms | complete, by one number | complete |\n\n" +
		"The ring wins the race that we do not run: an agent speaks a hundred times a second, not ten million times. " +
		"The table is right and dear, because a thousand watchers ask it five thousand times a second whether there is news. " +
		"The log keeps what it has said, numbers it without holes, and lets everybody continue where they were. " +
		"Keep the ring for what may be lost, such as the cursor of somebody who is typing.\n")
	if audience != "" {
		m.text("Written for " + audience + ", as you said.\n")
	}
	m.end("end_turn")
}
