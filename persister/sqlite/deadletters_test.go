package sqlite

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestRedriveBelowFloor: a dead letter whose place has left the table stays, and the others beside it go.
func TestRedriveBelowFloor(t *testing.T) {
	s := temp(t)
	other := schema.RunKey{Tenant: key.Tenant, Run: "run_2"}
	var deadLetters []persister.DeadLetter
	for _, k := range []schema.RunKey{key, other} {
		w := persistertest.NewWriter(k, day)
		a, b := w.Texts("", 3), w.Texts("", 1)
		for _, p := range []schema.Pack{a, b} {
			deadLetters = append(deadLetters, persister.DeadLetter{Stream: k.Run, Position: uint64(p.First),
				Seq: p.First, Key: k, Subject: schema.Subject(k, "", 1),
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
	if left, err := s.FindDeadLetters(t.Context(), deadletter.Query{Limit: 9}); err != nil || len(left) != 1 ||
		!strings.Contains(left[0].Error, "archived") {
		t.Fatalf("%+v, %v", left, err)
	}
}

// TestDeadLettersView: the view shows all that is known of a dead letter, with its bytes.
func TestDeadLettersView(t *testing.T) {
	s := temp(t)
	letters := persistertest.SampleDeadLetters()
	if err := s.PutDeadLetters(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		var got persister.DeadLetter
		var id, since, headers string
		var size int
		err := s.read.QueryRow(`select id, reason, error, set_aside, coalesce(koder_user_id, ''), coalesce(run_id, ''), coalesce(seq, 0), stream, position, subject, size, headers, body
			from agent_v_dead_letters where reason = ?`, l.Reason).Scan(&id, &got.Reason, &got.Detail, &since, &got.Key.Tenant, &got.Key.Run, &got.Seq,
			&got.Stream, &got.Position, &got.Subject, &size, &headers, &got.Body)
		got.Header = persister.ParseHeaderBytes([]byte(headers))
		if err != nil || id != fmt.Sprintf("%x", l.ID()) || since == "" || size != len(l.Body) || !reflect.DeepEqual(got, l) {
			t.Errorf("%s %s %d %+v, %v", id, since, size, got, err)
		}
	}
}
