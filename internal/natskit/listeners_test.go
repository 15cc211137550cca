package natskit_test

import (
	"strings"
	"testing"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// TestListeners: whoever listens to the log's subjects is named, with what; what our own programs listen to is not.
func TestListeners(t *testing.T) {
	k := testkit.NATS(t)
	stranger := k.Dial(t)
	right := []string{"live.agent.>", "ask.agent.0.acme.run.-.w", "ingest.>", "$JS.EVENT.>", "agents.>", "agent",
		"_INBOX.x.*", natskit.LimitsSubject}
	for _, s := range right {
		if _, err := stranger.SubscribeSync(s); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := natskit.Listeners(t.Context(), k.Conn); err != nil || len(found) > 0 {
		t.Fatal(found, err)
	}
	wrong := []string{"agent.>", "agent.*", "agent.*.acme.>", "*.0.acme.>", ">", "$KV.AGENT_KEYS.>", "$JS.API.>",
		"$KV.*.x"}
	for _, s := range wrong {
		if _, err := stranger.SubscribeSync(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := stranger.Flush(); err != nil {
		t.Fatal(err)
	}
	found, err := natskit.Listeners(t.Context(), k.Conn)
	if err != nil || len(found) != len(wrong) {
		t.Fatal(found, err)
	}
	all := strings.Join(found, "\n") + "\n"
	for _, s := range wrong {
		if !strings.Contains(all, "listens to "+s+"\n") || !strings.Contains(all, t.Name()) {
			t.Errorf("%s is not named: %s", s, all)
		}
	}
}
