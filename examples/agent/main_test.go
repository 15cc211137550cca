package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	agentstream "agentstream/clients/go"
	"agentstream/edge/edgetest"
	"agentstream/protocols/sample"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAgent runs the agent to its end, and cancels another one.
func TestAgent(t *testing.T) {
	node := edgetest.Share().Start(t, sample.Protocol())
	config := agentstream.Config{BaseURL: "http://" + node.Host}
	client, err := agentstream.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for id, want := range map[string]schema.RunState{"whole": schema.StateDone, "cancelled": schema.StateAborted} {
		ended := make(chan error, 1)
		go func() { ended <- play(ctx, config, id) }()
		var sum schema.Fold
		await := agentstream.Options{Detail: agentstream.DetailFull}
		edgetest.Eventually(t, "the run begins", func() bool {
			_, err := client.Run(id).Info(ctx)
			return err == nil
		})
		for event, err := range client.Run(id).Watch(ctx, await).All(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			sum.Add(&event)
			if id == "cancelled" && event.Type == schema.TypeTextDelta && strings.Contains(string(event.Payload), "Pelicans") {
				if _, err := client.Run(id).Cancel(ctx, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", id, err)
		}
		text := sum.Messages[0].Blocks[0].Text.String()
		if whole := text == "Pelicans fish together, in a half circle."; sum.State != want ||
			whole != (want == schema.StateDone) {
			t.Errorf("%s: %q, %s", id, text, sum.State)
		}
	}
}
