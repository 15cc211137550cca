package sqlite

import (
	"bytes"
	"strings"
	"testing"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func TestLetters(t *testing.T) {
	persistertest.DeadLetterSuite(t, func(t *testing.T) (persistertest.Store, func(string) func()) {
		s := temp(t)
		exec := func(statement string) {
			t.Helper()
			if _, err := s.write.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		return s, func(text string) func() {
			exec(`create trigger refuse before insert on agent_run_events when new.line like '%` + text + `%' begin select raise(abort, 'refused'); end`)
			return func() { exec(`drop trigger refuse`) }
		}
	})
}

// TestRedriveBelowFloor: a dead letter whose place has left the table stays, and the others beside it go.
func TestRedriveBelowFloor(t *testing.T) {
	s := temp(t)
	other := schema.RunKey{Tenant: key.Tenant, Run: "run_2"}
	var deadLetters []persister.DeadLetter
	for _, k := range []schema.RunKey{key, other} {
		w := persistertest.NewWriter(k, day)
		a, b := w.Texts("", 3), w.Texts("", 1)
		for _, p := range []schema.Pack{a, b} {
			deadLetters = append(deadLetters, persister.DeadLetter{Stream: k.Run, Position: uint64(p.First), Seq: p.First, Key: k, Subject: schema.Subject(k, "", 1),
				Header: p.Headers(), Body: bytes.Split(p.Body, []byte("\n"))[0], Reason: persister.ReasonRefused})
		}
		if _, err := s.Append(t.Context(), chunks(t, w.Texts("", 2))); err != nil {
			t.Fatal(err)
		}
	}
	setFloor(t, s, key, 3)
	if err := s.PutDeadLetters(t.Context(), deadLetters); err != nil {
		t.Fatal(err)
	}
	all, err := s.FindDeadLetters(t.Context(), deadletter.Query{Limit: 9, Bodies: true})
	if err != nil || len(all) != 4 {
		t.Fatal(len(all), err)
	}
	out, err := deadletter.Redrive(t.Context(), s, all...)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if stays := l.Key == key && l.Seq == 1; stays != (out[i].Error != "") {
			t.Errorf("%s seq %d: %+v", l.Key, l.Seq, out[i])
		}
	}
	if left, err := s.FindDeadLetters(t.Context(), deadletter.Query{Limit: 9}); err != nil || len(left) != 1 || !strings.Contains(left[0].Error, "archived") {
		t.Fatalf("%+v, %v", left, err)
	}
}
