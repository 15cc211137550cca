package agui

import (
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/schema/schematest"
)

// TestGolden has the events of each response of every scenario, with their ids.
func TestGolden(t *testing.T) {
	for _, s := range schematest.All() {
		t.Run(s.Name, func(t *testing.T) {
			records := schematest.RecordsOf(t, "run_a", s)
			var b strings.Builder
			for _, first := range responsesOf(t, records) {
				b.WriteString("# " + first.String() + "\n")
				for _, f := range framesOf(t, dialect.Request{Run: "run_a", Span: first.String(), Form: formWhole}, records) {
					b.WriteString(f.id + " " + f.data + "\n")
				}
			}
			dialecttest.Golden(t, *update, s.Name+".txt", []byte(b.String()))
		})
	}
}

// logs are all scenarios, and runs that are drawn.
func logs() []schematest.Scenario {
	all := schematest.All()
	for seed := range uint64(40) {
		s := schematest.Generate(400, seed)
		s.Name = "drawn"
		all = append(all, s)
	}
	return all
}

// TestEventsAreTaken holds the bodies of all logs to what the client takes (verifyEvents).
func TestEventsAreTaken(t *testing.T) {
	for _, s := range logs() {
		records := schematest.RecordsOf(t, "run_a", s)
		for _, first := range responsesOf(t, records) {
			for _, form := range []string{"", "1", formWhole} {
				v := newRules()
				list := framesOf(t, dialect.Request{Run: "run_a", Span: first.String(), Form: form}, records)
				for i, f := range list {
					if err := v.check(f.data); err != nil {
						t.Fatalf("%s: response %d, event %d: %v: %v\n%v", s.Name, first, i, err, f, list[max(0, i-12):i])
					}
				}
			}
		}
	}
}

// TestSeam: a client that has a part of a response and is given the thread as a snapshot, at whatever record, has in
// the end what one has that was never cut, and its events are taken.
func TestSeam(t *testing.T) {
	for _, s := range logs() {
		records := schematest.RecordsOf(t, "run_a", s)
		for _, first := range responsesOf(t, records) {
			req := dialect.Request{Run: "run_a", Span: first.String(), Form: formWhole}
			for at := int(first); at < len(records); at += 1 + len(records)/60 {
				p := Dialect{}.Projector(req).(*projector)
				for _, r := range records[:at] {
					if err := p.Project(nil, r); err != nil {
						t.Fatal(err)
					}
				}
				if span := p.chat.Spans.Find(req.Span); span.Last > 0 {
					break
				}
				v := newRules()
				opening := p.For(req).(*projector).opening(req, "mine", threadOf(t, records, at), nil)
				client := newThread()
				take := func(f dialect.Frame) {
					if err := v.check(string(f.Data)); err != nil {
						t.Fatalf("%s: response %d at %d: %v: %s", s.Name, first, at, err, f.Data)
					}
					client.receive(t, f)
				}
				for _, f := range opening {
					take(f)
				}
				shown := at
				ends := 0
				for shown < len(records) && ends == 0 {
					if follow(t, p, records[shown:shown+1], take) {
						ends++
					}
					shown++
				}
				got, want := string(client.messages(nil, nil)), string(threadOf(t, records, shown).messages(nil, nil))
				if got != want {
					t.Fatalf("%s: response %d at %d:\n got %s\nwant %s", s.Name, first, at, got, want)
				}
			}
		}
	}
}
