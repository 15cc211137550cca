package tap

import (
	"fmt"
	"testing"
	"time"

	"agentstream/schema"
)

// TestLedger: a ledger is read as it was saved, keeps runs that go on, and stays bounded.
func TestLedger(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key := func(i int) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)} }
	l, err := decodeLedger(nil)
	if err != nil {
		t.Fatal(err)
	}
	l.note(key(1), 9, at, true)
	l.note(key(2), 4, at, false)
	l.note(key(2), 3, at, true) // came again
	later := at.Add(ledgerRest + time.Minute)
	l.note(key(3), 1, later, true)
	l.prune()
	b, err := l.encode()
	if err != nil {
		t.Fatal(err)
	}
	if l, err = decodeLedger(b); err != nil || len(l.runs) != 2 || l.runs[key(2)].last != 4 ||
		l.runs[key(3)].last != 1 || !l.at.Equal(later) {
		t.Errorf("%+v, %v", l, err)
	}
	for i := range ledgerMost + 10 {
		l.note(key(i), 5, later.Add(time.Duration(i)*time.Second), false)
	}
	l.prune()
	if _, oldest := l.runs[key(1)]; len(l.runs) != ledgerMost || oldest {
		t.Errorf("%d runs", len(l.runs))
	}
	for _, bad := range [][]byte{{0}, []byte("gzip"), b[:len(b)/2]} {
		if _, err := decodeLedger(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// TestSpec: what cannot be a part of a subject, and what can never match, is refused.
func TestSpec(t *testing.T) {
	for _, s := range []Spec{{}, {Name: "a.b"}, {Name: "a b"}, {Name: "a", Tenant: "*"}, {Name: "a", Types: []string{""}},
		{Name: "a", Types: []string{"a*b"}}, {Name: "a", Types: []string{"a,b"}}, {Name: "a>"}} {
		if s.Validate() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
	s := Spec{Name: "a", Types: []string{"run.*", "text.delta"}}
	for name, want := range map[string]bool{"run.lifecycle": true, "text.delta": true, "text.deltas": false,
		"runs": false} {
		if s.HasType(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

// TestWithTenant: the line of a sink is the event's with its tenant before it.
func TestWithTenant(t *testing.T) {
	e := Event{Run: schema.RunKey{Tenant: "acme", Run: "run_1"}, Seq: 3, Line: []byte(`{"id":"evt_1","seq":3}`)}
	if got := string(e.WithTenant(nil)); got != `{"tenant":"acme","id":"evt_1","seq":3}` || e.Key() != "acme/run_1/3" {
		t.Errorf("%s, %s", got, e.Key())
	}
}
