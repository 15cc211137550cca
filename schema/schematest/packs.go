package schematest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"agentstream/schema"
)

// Epoch is the time of every scenario's first event; each further event is Tick later.
var Epoch = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// Tick is the time between two events.
const Tick = 7 * time.Millisecond

// Writer and Owner are what packs carry as their writer and as the owner of each lane, with epoch 1.
const (
	Writer = "writer-1"
	Owner  = "owner-1"
)

// EventID returns the id of the event with this seq, in a run that began at Epoch.
func EventID(seq schema.Seq) string {
	var id ulid.ULID
	at := Epoch.Add(time.Duration(seq-1) * Tick)
	if err := id.SetTime(ulid.Timestamp(at)); err != nil {
		panic(fmt.Sprintf("schematest: %v", err))
	}
	binary.BigEndian.PutUint64(id[8:], uint64(seq))
	return schema.EventPrefix + id.String()
}

// NumberEvents returns the scenario's events as the log of run holds them: with id, time, run and seq.
func NumberEvents(run string, s Scenario) []schema.Event {
	events := slices.Clone(s.Events)
	for i := range events {
		e := &events[i]
		e.Seq = schema.Seq(i + 1)
		e.ID = EventID(e.Seq)
		e.TS = Epoch.Add(time.Duration(i) * Tick).Format(schema.TimeLayout)
		e.RunID = run
		if len(e.Path) > 0 && e.Path[0] == Root {
			e.Path = slices.Clone(e.Path)
			e.Path[0] = run
		}
	}
	return events
}

// Packs returns the scenario as packs of at most perPack events (and at most schema.MaxPackBytes);
// one pack holds one lane. perPack below 1 means as many as fit. Head.Stored is 1, 2, 3 ….
func Packs(key schema.RunKey, s Scenario, perPack int) []schema.Pack {
	if perPack < 1 {
		perPack = schema.MaxPackEvents
	}
	var (
		packs []schema.Pack
		head  = schema.Head{Day: Epoch.Format("20060102")}
		open  *schema.Pack
	)
	closePack := func() {
		if open != nil {
			head.Stored++
			open.Head = head
			open.Head.Lane = schema.Lane{Owner: Owner, Epoch: 1}
			packs = append(packs, *open)
			open = nil
		}
	}
	for _, e := range NumberEvents(key.Run, s) {
		line := append(e.AppendLine(nil), '\n')
		if open != nil && (open.Child != e.ChildID || open.Count == perPack ||
			len(open.Body)+len(line) > schema.MaxPackBytes) {
			closePack()
		}
		if open == nil {
			open = &schema.Pack{Key: key, Child: e.ChildID, First: e.Seq, Writer: Writer}
		}
		if err := head.Advance(e.Type, e.ChildID, e.ID, e.Payload); err != nil {
			panic(fmt.Sprintf("schematest: scenario %s, seq %d: %v", s.Name, e.Seq, err))
		}
		open.Body = append(open.Body, line...)
		open.Count++
	}
	closePack()
	return packs
}

// Lines returns the lines of packs in order, without line feeds.
func Lines(packs []schema.Pack) []string {
	var lines []string
	for i := range packs {
		for line := range schema.Lines(packs[i].Body) {
			lines = append(lines, string(line))
		}
	}
	return lines
}
