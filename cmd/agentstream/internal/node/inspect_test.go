package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/edge"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
)

// offsetsOf is what a store has of the log.
type offsetsOf struct {
	stored []persister.StoredOffset
	err    error
}

func (o *offsetsOf) Offsets(context.Context) ([]persister.StoredOffset, error) {
	return o.stored, o.err
}

// TestInspector: each kind of damage fails the check that is for it, and that one alone, in words that name the stream
// or the command.
func TestInspector(t *testing.T) {
	full := []persister.StoredOffset{{Offset: persister.Offset{Stream: "AGENT_0", Identity: "another", Position: 40}}}
	again := []persister.StoredOffset{{Offset: persister.Offset{Stream: "AGENT_0", Identity: "this", Generation: 1}}}
	change := func(name string, how func(*jetstream.StreamConfig)) func(*testing.T, *testkit.Server) {
		return func(t *testing.T, k *testkit.Server) {
			s, err := k.JS.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			if err := k.JS.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if how == nil {
				return
			}
			how(&cfg)
			if _, err := k.JS.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(t *testing.T, k *testkit.Server) {
		if _, err := k.JS.Publish(t.Context(), "agent.2.acme.run_1.-", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		do     func(*testing.T, *testkit.Server)
		stored *offsetsOf // nil: there is no store
		fails  string     // the check; "": none
		words  []string
	}{
		"healthy": {},
		"new":     {stored: &offsetsOf{}},
		"a stream missing": {do: change("AGENT_3", nil), fails: "streams",
			words: []string{"AGENT_3", "agentstream migrate --partitions 4 --replicas 1 --window 72h0m0s"}},
		"no keys": {do: change("KV_AGENT_KEYS", nil), fails: "streams",
			words: []string{"KV_AGENT_KEYS", "agentstream migrate"}},
		"retention": {do: change("AGENT_1", func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }), fails: "streams",
			words: []string{"AGENT_1", "retention"}},
		"subjects": {do: change("AGENT_1", func(c *jetstream.StreamConfig) { c.Subjects = []string{"agent.1.a.>"} }),
			fails: "streams",
			words: []string{"AGENT_1", "subjects"}},
		"window": {do: change("AGENT_1", func(c *jetstream.StreamConfig) { c.MaxAge /= 2 }),
			fails: "replicas", words: []string{"AGENT_1", "window"}},
		"empty beside a full archive": {stored: &offsetsOf{stored: full}, fails: "contents",
			words: []string{"agentstream migrate", "agentstream doctor"}},
		"empty, and passed over":          {stored: &offsetsOf{stored: again}, fails: "contents"},
		"written to since":                {do: write, stored: &offsetsOf{stored: full}},
		"the store does not answer":       {stored: &offsetsOf{err: errors.New("test: away")}},
		"made again beside a new archive": {do: change("AGENT_0", func(*jetstream.StreamConfig) {}), stored: &offsetsOf{}},
	} {
		t.Run(name, func(t *testing.T) {
			k := testkit.NATS(t)
			l, err := natskit.ReadLayout(t.Context(), k.JS)
			if err != nil {
				t.Fatal(err)
			}
			if c.do != nil {
				c.do(t, k)
			}
			i := NewInspector(k.JS, l, nil, process.NewMetrics())
			if c.stored != nil {
				i.stored = c.stored
			}
			checks := i.Checks()
			for n, r := range edge.RunChecks(t.Context(), checks) {
				if failed := r.Err != nil; failed != (checks[n].Name == c.fails) {
					t.Errorf("%s: %v", checks[n].Name, r.Err)
				}
				for _, word := range c.words {
					if r.Err != nil && !strings.Contains(r.Err.Error(), word) {
						t.Errorf("%s: %v lacks %q", checks[n].Name, r.Err, word)
					}
				}
				if checks[n].Optional == (checks[n].Name == "streams") {
					t.Errorf("%s: optional %v", checks[n].Name, checks[n].Optional)
				}
			}
		})
	}
}

// TestInspectorPayload: a server that takes less than the largest pack is named, whether it was so from the start or
// was told while the process runs; that keeps no node from serving.
func TestInspectorPayload(t *testing.T) {
	o := server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		MaxPayload: 1 << 20}
	s, err := server.NewServer(o.Clone())
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := natskit.Dial(s.ClientURL(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, most := range []int32{1 << 20, 64 << 10, 1 << 20} {
		now := o.Clone()
		now.MaxPayload = most
		if nc.MaxPayload() != int64(most) {
			if err := s.ReloadOptions(now); err != nil {
				t.Fatal(err)
			}
		}
		i := NewInspector(js, natskit.Layout{Partitions: 1}, nil, process.NewMetrics())
		checks := i.Checks()
		at := slices.IndexFunc(checks, func(c edge.Check) bool { return c.Name == "payload" })
		err := checks[at].Run(t.Context())
		if failed := err != nil; failed != (most < natskit.NeedPayload) || !checks[at].Optional {
			t.Errorf("%d: %v", most, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "max_payload") || !strings.Contains(err.Error(), "65536")) {
			t.Error(err)
		}
		for nc.MaxPayload() != int64(most) || !nc.IsConnected() { // it connects anew, and learns it
			time.Sleep(time.Millisecond)
		}
	}
}
