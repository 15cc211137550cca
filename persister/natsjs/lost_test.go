package natsjs_test

import (
	"errors"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestDroppedLog: messages leave the log before they are stored, because the store came back older, or never had them.
// Nobody may append before a persister has recorded that. What runs have lost is found before the rest is stored.
// Examine reports the loss before that, also of a stream that is empty by then.
func TestDroppedLog(t *testing.T) {
	s, store := testkit.NATS(t), persistertest.NewMemory()
	key := schema.RunKey{Tenant: "acme", Run: runIn(0, s.Partitions)}
	other := schema.RunKey{Tenant: "umbrella", Run: key.Run}
	w, v := persistertest.NewWriter(key, "20260228"), persistertest.NewWriter(other, "20260228")
	put := func(p schema.Pack) {
		publish(t, s, schema.Subject(p.Key, p.Child, s.Partitions), p.Headers(), p.Body)
	}
	compare := func() error { _, err := natsjs.Compare(t.Context(), s.JS, store, 0); return err }
	put(w.Texts("", 2))
	persistTo(t, s.JS, store, nil, 1)
	put(w.Texts("", 3))
	put(v.Texts("", 5))
	bound(t, s, time.Second, -1)
	first(t, s, 4)
	if err := compare(); !errors.Is(err, persister.ErrBehind) {
		t.Errorf("appends to a log that has dropped what is not stored: %v", err)
	}
	streams, err := natsjs.ExamineStreams(t.Context(), s.JS, store)
	if err != nil || streams[0].Dropped != 2 {
		t.Errorf("examined: %+v, %v", streams[0], err)
	}
	bound(t, s, time.Hour, -1)
	put(w.Texts("", 1))
	put(v.Texts("", 4))
	lost, err := natsjs.FindLostRuns(t.Context(), s.JS, store, "AGENT_0")
	if err != nil || len(lost) != 2 {
		t.Fatalf("%+v, %v", lost, err)
	}
	for _, l := range lost {
		want := persister.RunLoss{Key: key, First: 3, Last: 5, Reason: persister.LossDropped}
		if l.Key == other {
			want = persister.RunLoss{Key: other, First: 1, Last: 5, Reason: persister.LossDropped}
		}
		if l != want {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
	persistTo(t, s.JS, store, nil, 0)
	if err := compare(); err != nil {
		t.Errorf("after it was recorded: %v", err)
	}
	losses, _ := store.Losses()
	if len(losses) != 1 || losses[0].First != 2 || losses[0].Last != 3 || losses[0].Reason != persister.LossDropped {
		t.Errorf("recorded: %+v", losses)
	}
}
