package demo

import (
	"time"

	"agentstream/schema"
)

// tour is the script with everything in it.
func tour(a *actor) {
	a.state(schema.StatePlanning, "")
	a.begin()
	a.user("Which queue should carry the events of our agents: a ring in memory, a table that is polled, or a log?")
	a.propose("")
	a.approval()
	a.state(schema.StateRunning, "")
	a.notes()
	a.turnOff()
	a.compare()
	a.turnOff()
	a.recommend(a.ask("audience", "Who is the recommendation for?", "engineers", "managers"))
	a.finish()
}

func tourPlan(a *actor, why string) {
	if why == "" && a.s.plans == 1 {
		a.model(thought("Three designs, one question. What matters is what a reader sees after a crash, what a writer pays per event, "+
			"and what happens when a thousand people watch one run. I should read what the team wrote down, measure all three, "+
			"and have somebody else look for the way each of them fails."),
			text("I will compare the three designs in four steps."))
	} else {
		a.model(text("Another plan, then" + why + ". It still has four steps, but I will keep that in mind in each of them."))
	}
	a.plan(
		planStep{"s1", "Read the notes on the three designs", "research", []string{"read_file"}, 0.002},
		planStep{"s2", "Measure each under the same load", "execute", []string{"bench"}, 0.01},
		planStep{"s3", "Have others look for failures and costs", "verify", []string{"delegate"}, 0.008},
		planStep{"s4", "Recommend one", "report", []string{}, 0.003},
	)
}

// notes is one tool that prints while it works.
func (a *actor) notes() {
	calls := a.model(text("First the notes."), call("call_notes", "read_file", input("path", "notes/queues.md", "lines", []int{1, 60})))
	if a.err != nil {
		return
	}
	a.join(a.use(calls[0], tool{every: 180 * time.Millisecond, lines: []string{
		"# Queues we could use\n", "ring   8,192 slots, one writer, readers by index\n", "table  INSERT, readers poll every 200 ms\n",
		"log    append only, compare-and-set on the last number\n", "open question: what does a reader that was away see?\n",
	}, result: "notes/queues.md: 5 lines"}))
	a.step("tool-roundtrip")
	a.wait(300 * time.Millisecond)
}

// compare has three tools and two children at work at the same time.
func (a *actor) compare() {
	bench := func(design string) part {
		return call("call_"+design, "bench", input("design", design, "writers", 4, "readers", 1000, "seconds", 3))
	}
	calls := a.model(
		thought("The open question is the one that decides. The benchmark takes a while, so others can look at failures and at costs meanwhile."),
		text("Now I measure all three at once, while two others look at how they fail and what they cost."),
		bench("ring"), bench("table"), bench("log"),
		call("call_review", "delegate", input("task", "For each of ring, table and log: what does a reader see that was away for a minute, and after a crash?")),
		call("call_costs", "delegate", input("task", "What do a thousand watchers of one run cost with each of the three?")),
	)
	if a.err != nil {
		return
	}
	a.step("fan-out")
	end, err := a.turn.Task("compare")
	if a.try(err); a.err != nil {
		return
	}
	others := []*actor{
		a.delegate(calls[3], "review", review, "read_file"),
		a.delegate(calls[4], "costs", costs, "query"),
	}
	for i, t := range benchmarks() {
		others = append(others, a.use(calls[i], t))
	}
	a.join(others...)
	if a.err != nil {
		return
	}
	a.try(end(true))
	a.step("fan-in")
	a.wait(500 * time.Millisecond)
}

// benchmarks are the tools of the three calls. They print by turns.
func benchmarks() []tool {
	const third = 230 * time.Millisecond
	return []tool{
		{every: 3 * third, result: "9.9 M/s; 212 of 1000 readers lost events", lines: []string{
			"warm-up\n", "1 s: 9.8 M events/s\n", "2 s: 9.9 M events/s\n", "3 s: 9.9 M events/s, 212 readers were lapped\n"}},
		{after: third, every: 3 * third, result: "7 k/s; p99 204 ms; nothing lost", lines: []string{
			"warm-up\n", "1 s: 11 k events/s\n", "2 s: 8 k events/s, 5,000 polls/s\n", "3 s: 7 k events/s, p99 204 ms\n"}},
		{after: 2 * third, every: 3 * third, result: "150 k/s; p99 6 ms; nothing lost", lines: []string{
			"warm-up\n", "1 s: 148 k events/s\n", "2 s: 151 k events/s\n", "3 s: 150 k events/s, p99 6 ms\n"}},
	}
}

// review is the first child.
func review(a *actor) string {
	a.model(report("Ring: whoever was away for a minute was lapped and cannot know what is missing. " +
		"Table: nothing is missing, but every reader asks five times a second, also when nothing happens. " +
		"Log: a reader says the last number it has and gets the rest; after a crash the number after the last stored one is still the next."))
	return "Only the ring loses, and it does not say so."
}

// costs is the second child, with a tool of its own.
func costs(a *actor) string {
	calls := a.model(thought("Polls cost when nothing happens; pushes cost when something does."),
		call("call_polls", "query", input("sql", "select polls, rows from stats where run = 'r1'")))
	if a.err != nil {
		return ""
	}
	a.join(a.use(calls[0], tool{every: 250 * time.Millisecond, lines: []string{"polls  5,000/s\n", "rows   41/s\n"}, result: "one row"}))
	a.turnOff()
	a.model(report("The table is asked 5,000 times a second for 41 rows. Ring and log push what there is, and nothing when there is nothing."))
	return "The table costs a hundred times what it delivers."
}

// recommend ends the tour, for the readers that the person has named.
func (a *actor) recommend(audience string) {
	parts := []part{
		thought("The ring is the fastest and the only one that loses. The table loses nothing and costs most where nobody looks. " +
			"The log is fast enough by a factor of a hundred, and it answers the open question with one number."),
		text("**Take the log.**\n\n" +
			"| design | events/s | p99 | reader was away | after a crash |\n" +
			"|---|---|---|---|---|\n" +
			"| ring | 9,900,000 | <1 ms | loses events, silently | empty |\n" +
			"| table | 7,000 | 204 ms | complete | complete |\n" +
			"| log | 150,000 | 6 ms | complete, by one number | complete |\n\n"),
		picture("image/svg+xml", "events-per-second.svg", chart("events a second, each step ten times more", bar{"ring", 9_900_000}, bar{"table", 7_000}, bar{"log", 150_000})),
		text("An agent speaks a hundred times a second, not ten million times, so the ring wins a race that we do not run. " +
			"The table is right and dear. " +
			"The log keeps what it has said, numbers it without holes, and lets everybody continue where they were.\n"),
	}
	if audience != "" {
		parts = append(parts, text("Written for "+audience+", as you said.\n"))
	}
	a.model(parts...)
}
