package persister_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestBadMessages: what is no pack, or only partly one, is set aside with its bytes; its neighbours
// are stored, and the queue goes on.
func TestBadMessages(t *testing.T) {
	w := persistertest.NewWriter(key("r"), day)
	first, split, last := w.Texts("", 2), w.Texts("", 4), w.Texts("", 2)
	subject := schema.Subject(key("r"), "", 4)
	header := func(p schema.Pack, name, value string) map[string][]string {
		h := p.Headers()
		h[name] = []string{value}
		return h
	}
	lines := bytes.SplitAfter(split.Body, []byte("\n"))
	foreign := bytes.Replace(lines[1], []byte(`"run_id":"r"`), []byte(`"run_id":"x"`), 1)
	cut := append(lines[2][:len(lines[2])/2:len(lines[2])/2], '\n')
	mixed := bytes.Join([][]byte{lines[0], foreign, cut, lines[3]}, nil)
	for _, c := range []struct {
		name, subject string
		header        map[string][]string
		body          []byte
		reason        string
		deadLetters   int
	}{
		{"no headers", subject, nil, []byte("hello"), persister.ReasonBadMessage, 1},
		{"empty", subject, split.Headers(), nil, persister.ReasonBadMessage, 1},
		{"binary", subject, split.Headers(), []byte("\x00\xff\n"), persister.ReasonBadMessage, 1},
		{"foreign subject", "agent.0.acme", split.Headers(), split.Body, persister.ReasonBadMessage, 1},
		{"wildcard in the run", "agent.0.acme.*.-", split.Headers(), split.Body, persister.ReasonBadMessage, 1},
		{"count too small", subject, header(split, schema.HeaderCount, "3"), split.Body, persister.ReasonBadMessage, 1},
		{"day of no calendar", subject, header(split, schema.HeaderDay, "20260230"), split.Body,
			persister.ReasonBadMessage, 1},
		{"year zero", subject, header(split, schema.HeaderDay, "00000101"), split.Body, persister.ReasonBadMessage, 1},
		{"another seq", subject, header(split, schema.HeaderSeq, "1000"), split.Body, persister.ReasonBadEvent, 4},
		{"another lane", strings.TrimSuffix(subject, "-") + "kid", split.Headers(), split.Body, persister.ReasonBadEvent, 4},
		{"two of four", subject, split.Headers(), mixed, persister.ReasonBadEvent, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, store := newQueue("AGENT_0"), newLedger()
				q.put(first)
				q.raw(c.subject, c.header, c.body)
				q.put(last)
				p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
				synctest.Wait()
				stop()
				if at := store.offset(t, "AGENT_0"); at.Position != 3 {
					t.Errorf("the offset is %d, want 3", at.Position)
				}
				if got, want := p.Status()[0].Inserted, uint64(8-c.deadLetters); c.deadLetters <= 2 &&
					c.reason == persister.ReasonBadEvent && got != want {
					t.Errorf("%d rows, want %d", got, want)
				}
				if h, _ := store.Head(t.Context(), key("r"), ""); h.Last != 8 {
					t.Errorf("head is at %d", h.Last)
				}
				got := deadLetters(t, store)
				if len(got) != c.deadLetters {
					t.Fatalf("%d dead letters, want %d: %+v", len(got), c.deadLetters, got)
				}
				for _, l := range got {
					if l.Reason != c.reason || l.Position != 2 || l.Subject != c.subject || l.Detail == "" ||
						!bytes.Contains(append(c.body, 'x'), l.Body) {
						t.Errorf("letter %+v", l)
					}
				}
			})
		})
	}
}
