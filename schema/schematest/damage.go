package schematest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentstream/schema"
)

// Damage is what may happen to one control event of a log.
type Damage int

// Damages. Of the first two nothing may be seen.
const (
	Doubled     Damage = iota // it comes once more, directly after itself
	DoubledLate               // it comes once more later, at any place up to the end of the log
	Missing                   // it does not come
	Late                      // it comes later
	damages
)

var damageNames = [damages]string{"doubled", "doubled late", "missing", "late"}

// Damaged is a log that was damaged.
type Damaged struct {
	Scenario
	Whole Scenario // before
	What  string   // what was done, for people
	// nothing was done but that events were repeated which stay what they are: all readers are to have the same as of
	// Whole
	Pure  bool
	Again bool // something is repeated where its id may be used again: it may be another one
}

// MakeDamaged makes n random damages in the run Telling(seed). What the log would refuse, because the run is over, is
// not in it.
func MakeDamaged(seed uint64, n int) Damaged {
	rng := rand.New(rand.NewPCG(seed, 0xda3a6e))
	whole := Telling(seed)
	d := Damaged{Whole: whole, Pure: true}
	events := slices.Clone(whole.Events)
	var what []string
	for range n {
		i := rng.IntN(len(events))
		if info, err := schema.Lookup(events[i].Type); err != nil || !info.Control {
			continue
		}
		kind := Damage(rng.IntN(int(damages)))
		at := i + 1
		if kind == DoubledLate || kind == Late {
			at += rng.IntN(len(events) - i)
		}
		e := events[i]
		if kind != Missing && !isStable(&events[i], events[i+1:at]) {
			d.Pure, d.Again = false, true
		}
		if kind == Missing || kind == Late {
			d.Pure = false
		}
		if kind == Doubled || kind == DoubledLate || kind == Late {
			events = slices.Insert(events, at, e)
		}
		if kind == Missing || kind == Late {
			events = slices.Delete(events, i, i+1)
		}
		what = append(what, fmt.Sprintf("%s: %d %s%s %.80s, at %d", damageNames[kind], i+1, e.ChildID, e.Type,
			e.Payload, at+1))
	}
	if hasSecondStart(events) {
		d.Pure, d.Again = false, true
	}
	d.Scenario = Scenario{Name: fmt.Sprintf("damaged-%d-%d", seed, n), Events: selectAccepted(events)}
	d.What = strings.Join(what, "; ")
	return d
}

// isStable reports whether an event stays what it is when others were between.
func isStable(e *schema.Event, between []schema.Event) bool {
	of := func(types ...string) bool {
		return slices.ContainsFunc(between, func(b schema.Event) bool { return b.ChildID == e.ChildID && slices.Contains(types, b.Type) })
	}
	switch e.Type {
	case schema.TypeCommandMessage: // people may say it again
		return false
	case schema.TypeRunLifecycle, schema.TypeSessionCreated, schema.TypeSessionUpdated, schema.TypeStateValues, schema.TypeStateUpdate, schema.TypeCheckpoint,
		schema.TypeStepBoundary, schema.TypeProgress:
		return len(between) == 0 // the newest counts
	case schema.TypeInputRequested:
		return !of(schema.TypeRunLifecycle, schema.TypeCommandMessage, schema.TypeTurnStart)
	case schema.TypeTurnStart: // ids may be used again
		return len(between) == 0
	case schema.TypeModelStart, schema.TypeTaskStart: // they may go on after an answer
		told := func(b schema.Event) bool {
			return b.Type == schema.TypeInputAnswered || strings.HasPrefix(b.Type, "command.")
		}
		return !of(schema.TypeRunLifecycle, schema.TypeTurnStart) && !slices.ContainsFunc(between, told)
	case schema.TypeMessageStart:
		return !of(schema.TypeRunLifecycle, schema.TypeCommandMessage, schema.TypeTurnStart) // an id may be used again then
	case schema.TypeToolStart, schema.TypeBlockStart:
		return !of(schema.TypeRunLifecycle, schema.TypeCommandMessage, schema.TypeMessageStart, schema.TypeTurnStart)
	}
	return true
}

// hasSecondStart reports whether a message that has ended begins with a block once more. It is another one
// then.
func hasSecondStart(events []schema.Event) bool {
	type message struct{ child, id string }
	ended, again := map[message]bool{}, map[message]bool{}
	for i := range events {
		e := &events[i]
		m := message{e.ChildID, string(schema.Field(e.Payload, "message_id"))}
		switch {
		case e.Type == schema.TypeMessageEnd:
			ended[m] = true
		case e.Type == schema.TypeMessageStart && ended[m]:
			again[m] = true
		case e.Type == schema.TypeBlockStart && again[m]:
			return true
		}
	}
	return false
}

// selectAccepted returns the events that the log takes.
func selectAccepted(events []schema.Event) (out []schema.Event) {
	var head schema.Head
	for i := range events {
		e := &events[i]
		if head.Advance(e.Type, e.ChildID, "", e.Payload) == nil {
			out = append(out, *e)
		}
	}
	return out
}

// Shown is what a reader shows of a run: what begins and what ends, by kind and id, as often as it is shown. "all "
// and a kind counts all of it: that is looked at where events are only repeated.
type Shown map[string]int

// hardSeeds are logs in which a message or a call lacks more than one of its events, or a message begins once more.
var hardSeeds = []uint64{489, 670, 1932, 2094, 2630, 3210, 11843, 13047, 14527, 30675}

// SeedsOfDamage returns seeds for MakeDamaged, with 1+seed%4 damages each: those of logs that are hard to read, and so
// many others.
func SeedsOfDamage(others uint64) []uint64 {
	all := slices.Clone(hardSeeds)
	for seed := range others {
		all = append(all, seed)
	}
	return all
}

// CheckDamaged makes so many damaged logs, and checks what a reader shows of each against what it shows of the whole
// one.
func CheckDamaged(t *testing.T, logs uint64, shownOf func(*testing.T, Scenario) Shown) {
	t.Helper()
	for _, seed := range SeedsOfDamage(logs) {
		d := MakeDamaged(seed, 1+int(seed%4))
		if problem := d.Check(shownOf(t, d.Scenario), shownOf(t, d.Whole)); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
	}
}

// Check compares what a reader shows of a damaged log with what it shows of the whole one; "" is right. What is only
// repeated is shown once, and nothing has the name unknown.
func (d *Damaged) Check(got, whole Shown) (problem string) {
	for key, n := range got {
		switch {
		case strings.HasSuffix(key, "unknown"):
			problem += fmt.Sprintf("%s is shown\n", key)
		case d.Pure && n != whole[key], !d.Again && n > max(1, whole[key]) && !strings.HasPrefix(key, "all "):
			problem += fmt.Sprintf("%s is shown %d times, of %d\n", key, n, whole[key])
		}
	}
	for key, n := range whole {
		if d.Pure && got[key] == 0 {
			problem += fmt.Sprintf("%s is not shown, of %d\n", key, n)
		}
	}
	if problem != "" {
		problem = d.What + "\n" + problem
	}
	return problem
}
