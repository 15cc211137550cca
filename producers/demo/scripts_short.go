package demo

import (
	"fmt"
	"time"

	"agentstream/schema"
)

// archive is a plan that waits for a person.
func archive(a *actor) {
	a.state(schema.StatePlanning, "")
	a.begin()
	a.user("Move last year's runs to cold storage.")
	a.propose("")
	a.approval()
	a.state(schema.StateRunning, "")
	for i, s := range []struct{ say, tool, input, prints, result string }{
		{"First the list.", "list_runs", input("year", 2025), "2025: 41,207 runs, 18 GB\n", "41207 runs"},
		{"Now the copy.", "copy", input("from", "hot", "to", "cold"), "41,207 of 41,207, sums agree\n", "copied"},
		{"Sums agree, so the originals may go.", "delete", input("from", "hot", "year", 2025), "freed 18 GB\n", "deleted"},
	} {
		a.turnOff()
		calls := a.model(text(s.say), call(fmt.Sprintf("call_%d", i+1), s.tool, s.input))
		if a.err != nil {
			return
		}
		a.join(a.use(calls[0], tool{every: 400 * time.Millisecond, lines: []string{s.prints}, result: s.result}))
		a.step("tool-roundtrip")
	}
	a.turnOff()
	a.model(text("Done: 41,207 runs are in cold storage, and nothing was deleted before its copy was checked."))
	a.finish()
}

func archivePlan(a *actor, why string) {
	if a.s.plans == 1 {
		a.model(thought("The last step cannot be undone. Somebody should agree before the first."), text("This deletes data, so I ask first."))
	} else {
		a.model(text("Then like this" + why + ". Do you agree?"))
	}
	a.plan(
		planStep{"s1", "List the runs of last year", "research", []string{"list_runs"}, 0.001},
		planStep{"s2", "Copy them to cold storage", "execute", []string{"copy"}, 0.004},
		planStep{"s3", "Delete the originals", "edit", []string{"delete"}, 0.002},
	)
}

// failure is a tool that fails, a child that fails and a model that fails.
func failure(a *actor) {
	a.state(schema.StateRunning, "")
	a.begin()
	a.user("Upgrade the client library and make the tests pass.")
	calls := a.model(text("I run the tests first."), call("call_tests", "run_tests", input("path", "./...")))
	if a.err != nil {
		return
	}
	a.join(a.use(calls[0], tool{every: 300 * time.Millisecond, lines: []string{"ok    client\n", "FAIL  client/retry  0.21 s\n"}, fails: "exit status 1: 1 of 2 packages failed"}))
	a.step("tool-roundtrip")
	a.turnOff()
	calls = a.model(thought("One package fails. Somebody else can look at it while I read the changes."),
		text("One package fails; I have it looked at."),
		call("call_fix", "delegate", input("task", "Why does client/retry fail?")))
	if a.err != nil {
		return
	}
	a.step("fan-out")
	a.join(a.delegate(calls[0], "fixer", fixer))
	a.step("fan-in")
	a.turnOff()
	a.model(text("The other one is gone, so I go on alone. The upgrade has renamed"), breaksOff("model: overloaded"))
	a.finish()
}

// fixer is a child whose model fails.
func fixer(a *actor) string {
	a.model(text("The retry waits for"), breaksOff("model: the context is too long"))
	return ""
}

// quick is the shortest script with a tool in it.
func quick(a *actor) {
	a.state(schema.StateRunning, "")
	a.begin()
	a.user("What time is it in Bern?")
	calls := a.model(thought("I have a clock."), call("call_clock", "clock", input("city", "Bern")))
	if a.err != nil {
		return
	}
	a.join(a.use(calls[0], tool{every: 300 * time.Millisecond, lines: []string{"12:00\n"}, result: "12:00"}))
	a.step("tool-roundtrip")
	a.turnOff()
	a.model(text("It is noon in Bern, as it always is in a script."))
	a.finish()
}
