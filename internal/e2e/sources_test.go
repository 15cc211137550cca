package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// sdkClient publishes to one run through the SDK until ctx ends.
func sdkClient(ctx context.Context, t *testing.T, k *testkit.Server, run string) {
	log, err := pubjs.Open(context.Background(), k.Conn)
	if err != nil {
		t.Error(err)
		return
	}
	pub, err := producers.New(producers.Config{Log: log, Key: schema.RunKey{Tenant: "default", Run: run}})
	if err != nil {
		t.Error(err)
		return
	}
	for i := 0; ctx.Err() == nil; i++ {
		payload := fmt.Appendf(nil, `{"text":"%d \ud800\u0000","b":1e400,"a":1.10}`, i)
		if _, err := pub.Append(context.Background(),
			schema.Event{Type: schema.TypeTextDelta, Payload: payload}); err != nil {
			t.Error(err)
			return
		}
	}
	if err := pub.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// eachStream calls fn for every partition of the log, in order, and then what is to be done before
// the connection is closed.
func eachStream(t testing.TB, url string, fn func(jetstream.Stream), then ...func()) {
	t.Helper()
	nc, err := natskit.Dial(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	n, err := natskit.Partitions(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for p := range n {
		s, err := js.Stream(t.Context(), natskit.StreamName(p))
		if err != nil {
			t.Fatal(err)
		}
		fn(s)
	}
	for _, f := range then {
		f()
	}
}

// drained reports whether everything that the log holds is stored.
func drained(t testing.TB, url, archive string) bool {
	t.Helper()
	left, err := pending(t.Context(), url, archive)
	return err == nil && left == 0
}

func purgeAll(t testing.TB, url string) {
	t.Helper()
	eachStream(t, url, func(s jetstream.Stream) {
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// eachStored reads all that the log holds, message by message, beside every layer of ours.
func eachStored(t testing.TB, url string, fn func(schema.Pack)) {
	t.Helper()
	eachStream(t, url, func(s jetstream.Stream) {
		info := s.CachedInfo().State
		for at := info.FirstSeq; at <= info.LastSeq && info.Msgs > 0; at++ {
			m, err := s.GetMsg(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, child := schema.ParseChildSubject(m.Subject); child {
				continue // it says whose child an id is, and holds nothing
			}
			p, err := schema.ParsePack(m.Subject, m.Header, m.Data, at)
			if err != nil {
				t.Fatal(err)
			}
			fn(p)
		}
	})
}

// streamLines reads all that the log holds, beside every layer of ours: tenant/run/seq → line.
func streamLines(t testing.TB, url string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	eachStored(t, url, func(p schema.Pack) {
		seq := p.First
		for line := range schema.Lines(p.Body) {
			key := fmt.Sprintf("%s/%d", p.Key, seq)
			if _, twice := out[key]; twice {
				t.Fatalf("%s stands twice in the log", key)
			}
			out[key] = string(line)
			seq++
		}
	})
	return out
}
