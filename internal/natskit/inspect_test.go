package natskit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// told puts what an inspection says of one stream into a text.
func told(h *natskit.StreamHealth) string {
	var parts []string
	if h.Missing {
		parts = append(parts, "missing")
	}
	if h.Silent != nil {
		parts = append(parts, "silent")
	}
	for _, w := range h.Wrong {
		parts = append(parts, "wrong "+w)
	}
	for _, o := range h.Odd {
		parts = append(parts, "odd "+o)
	}
	return strings.Join(append(parts, h.Lagging()...), "; ")
}

// TestInspect: each stream that is missing or has another setting is found, and no other.
func TestInspect(t *testing.T) {
	const keys = "KV_" + natskit.KeysBucket
	remake := func(change func(*jetstream.StreamConfig)) func(*testing.T, jetstream.JetStream, string) {
		return func(t *testing.T, js jetstream.JetStream, name string) {
			s, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			change(&cfg)
			if err = js.DeleteStream(t.Context(), name); err == nil {
				_, err = js.CreateStream(t.Context(), cfg)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, js jetstream.JetStream, name string) {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		stream string
		do     func(*testing.T, jetstream.JetStream, string)
		want   string
	}{
		"first missing": {"AGENT_0", remove, "missing"},
		"one missing":   {"AGENT_2", remove, "missing"},
		"no keys":       {keys, remove, "missing"},
		"no blobs":      {natskit.BlobStream, remove, "missing"},
		"made again":    {"AGENT_1", remake(func(*jetstream.StreamConfig) {}), ""},
		"no tickets":    {"KV_" + natskit.TicketsBucket, remove, ""}, // who opens the bucket makes it again
		"retention":     {"AGENT_1", remake(func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }), "wrong retention"},
		"interest": {"AGENT_0", remake(func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }),
			"wrong retention"},
		"subjects": {"AGENT_1", remake(func(c *jetstream.StreamConfig) { c.Subjects = []string{"agent.1.acme.>"} }),
			"wrong subjects"},
		"in memory": {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }),
			"wrong storage"},
		"discard": {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew }),
			"wrong discard"},
		"few messages": {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }), "wrong most messages"},
		"per subject": {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }),
			"wrong most messages of a subject"},
		"small messages": {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 }),
			"wrong largest message"},
		"no copies":  {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.RePublish = nil }), "wrong live copies"},
		"no ack":     {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.NoAck = true }), "wrong acknowledges"},
		"partitions": {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.Metadata = nil }), "wrong partitions"},
		"window":     {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }), "odd window"},
		"bytes":      {"AGENT_3", remake(func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }), "odd max bytes"},
		"keys in memory": {keys, remake(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }),
			"wrong storage"},
		"keys' subjects": {keys, remake(func(c *jetstream.StreamConfig) { c.Subjects = []string{"$KV.AGENT_KEYS.a"} }),
			"wrong subjects"},
		"blobs drop": {natskit.BlobStream,
			remake(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }), "wrong discard"},
	} {
		t.Run(name, func(t *testing.T) {
			k := testkit.NATS(t)
			l, err := natskit.ReadLayout(t.Context(), k.JS)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range natskit.Inspect(t.Context(), k.JS, l) {
				if text := told(&h); text != "" {
					t.Fatalf("%s, which is as it was declared: %s", h.Name, text)
				}
			}
			c.do(t, k.JS, c.stream)
			for _, h := range natskit.Inspect(t.Context(), k.JS, l) {
				text := told(&h)
				if (h.Name == c.stream && !strings.HasPrefix(text, c.want)) || (h.Name != c.stream || c.want == "") && text != "" {
					t.Errorf("%s: %q", h.Name, text)
				}
			}
		})
	}
}

// TestInspectReplicas: a server that is away is named at every stream of which it has a replica, a stream with fewer
// replicas than it had is found, and so is one without a leader.
func TestInspectReplicas(t *testing.T) {
	c := testkit.NATSCluster(t)
	lead := c.Leader(t, "AGENT_0")
	away := (lead + 1) % 3
	nc, err := natskit.Dial(c.Servers[lead].ClientURL(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l, err := natskit.ReadLayout(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, is func(all map[string]string) bool) {
		t.Helper()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		all := make(map[string]string)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			for _, h := range natskit.Inspect(ctx, js, l) {
				all[h.Name] = told(&h)
			}
			cancel()
			if is(all) {
				return
			}
		}
		t.Fatalf("%s: %q", what, all)
	}
	healthy := func(all map[string]string) bool {
		for _, text := range all {
			if text != "" {
				return false
			}
		}
		return true
	}
	until("all replicas are current", healthy)
	name := c.Servers[away].Name()
	c.Stop(away)
	until("the server that is away is named", func(all map[string]string) bool {
		return strings.Contains(all["AGENT_0"], "the replica on "+name) && strings.Contains(all["AGENT_1"], name) &&
			strings.Contains(all["KV_AGENT_KEYS"], name)
	})
	c.Start(t, away)
	until("it is back", healthy)
	s, err := js.Stream(t.Context(), "AGENT_1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Replicas = 1
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	until("one replica is too few", func(all map[string]string) bool {
		return strings.HasPrefix(all["AGENT_1"], "odd replicas: 1") && all["AGENT_0"] == ""
	})
	for i := range c.Servers {
		if i != lead {
			c.Stop(i)
		}
	}
	until("nobody leads", func(all map[string]string) bool {
		return strings.Count(all["AGENT_0"], "offline") == 2 || strings.HasPrefix(all["AGENT_0"], "silent")
	})
}
