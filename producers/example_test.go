package producers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/provider"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// An agent's answer in ten lines. The log is JetStream in production: producers/natsjs.
func ExampleRun() {
	ctx, log, key := context.Background(), memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	pub, _ := producers.New(producers.Config{Log: log, Key: key})
	defer pub.Close(ctx)

	run, _ := producers.NewRun(producers.RunConfig{Sink: pub, RunID: key.Run})
	run.State(ctx, schema.StateRunning, "")
	turn, _ := run.Turn(ctx)
	defer turn.Close() // ends what is open, whatever happens
	msg, _ := turn.Message(producers.MessageInfo{Model: "my-model"})
	for _, word := range []string{"Readers remember ", "where they were."} {
		msg.Text(word)
	}
	msg.End("end_turn", nil)
	turn.End("end_turn")
	run.Finish(ctx)

	show(ctx, log, key)
	// Output:
	// 1 run.lifecycle
	// 2 turn.start
	// 3 message.start
	// 4 block.start
	// 5 text.delta
	// 6 text.delta
	// 7 block.end
	// 8 message.end
	// 9 turn.end
	// 10 run.lifecycle
}

// A model's answer goes into the turn as it streams, and the tools that it asks for are run.
func ExampleTurn_Model() {
	ctx, log, key := context.Background(), memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	pub, _ := producers.New(producers.Config{Log: log, Key: key})
	defer pub.Close(ctx)
	run, _ := producers.NewRun(producers.RunConfig{Sink: pub, RunID: key.Run})
	turn, _ := run.Turn(ctx)
	defer turn.Close()

	body := strings.NewReader(answer) // of the HTTP response
	if err := turn.Model("anthropic", "claude", anthropic.NewDecoder(provider.Config{}), body); err != nil {
		fmt.Println(err)
	}
	for _, call := range turn.Calls() {
		fmt.Println("run", call.Tool(), string(call.Args()))
		call.Finish("sunny")
	}
	turn.End("end_turn")
	pub.Flush(ctx)
	// Output:
	// run weather {"city":"Bern"}
}

// What was open is ended once, in the order that all dialects rely on.
func ExampleLane_Cancel() {
	ctx, log, key := context.Background(), memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	pub, _ := producers.New(producers.Config{Log: log, Key: key})
	defer pub.Close(ctx)
	run, _ := producers.NewRun(producers.RunConfig{Sink: pub, RunID: key.Run})
	turn, _ := run.Turn(ctx)
	msg, _ := turn.Message(producers.MessageInfo{})
	msg.Text("It was a dark and")

	run.Cancel(ctx, "cancelled by the user") // from another goroutine, as a rule

	fmt.Println("over:", errors.Is(msg.Text(" stormy night"), producers.ErrOver))
	show(ctx, log, key)
	// Output:
	// over: true
	// 1 turn.start
	// 2 message.start
	// 3 block.start
	// 4 text.delta
	// 5 block.end
	// 6 message.end
	// 7 turn.end
	// 8 run.lifecycle
}

// Append waits until its events are stored; Send only accepts them, and Flush waits for all.
func ExamplePublisher() {
	ctx, log, key := context.Background(), memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	pub, _ := producers.New(producers.Config{Log: log, Key: key})
	defer pub.Close(ctx)
	text := func(s string) schema.Event {
		return schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":%q}`, s)}
	}

	receipt, err := pub.Append(ctx, text("one "), text("two "))
	fmt.Println(receipt.First, receipt.Last, err)
	fmt.Println(pub.Send(ctx, text("three ")), pub.Flush(ctx))

	// Whoever opens a publisher on the run takes it over. The former owner must stop.
	other, _ := producers.New(producers.Config{Log: log, Key: key})
	defer other.Close(ctx)
	_, err = other.Append(ctx, text("four "))
	fmt.Println(err)
	_, err = pub.Append(ctx, text("five "))
	fmt.Println(errors.Is(err, producers.ErrFenced))
	// Output:
	// 1 2 <nil>
	// <nil> <nil>
	// <nil>
	// true
}

// An Appender writes to any run, one batch at a time. A key makes a repeat harmless.
func ExampleAppender() {
	ctx, log := context.Background(), memory.New()
	app, _ := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: &memory.Keys{}})
	events := []schema.Event{{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"Hello"}`)}}
	for range 2 {
		receipt, err := app.Append(ctx, schema.RunKey{Tenant: "acme", Run: "run_1"}, events,
			producers.AppendOptions{IdempotencyKey: "k1"})
		fmt.Println(receipt.First, receipt.Replayed, err)
	}
	// Output:
	// 1 false <nil>
	// 1 true <nil>
}

// A child writes into the log of its root, in a lane of its own.
func ExampleLane_Spawn() {
	ctx, log, key := context.Background(), memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	pub, _ := producers.New(producers.Config{Log: log, Key: key})
	defer pub.Close(ctx)
	run, _ := producers.NewRun(producers.RunConfig{Sink: pub, RunID: key.Run})

	child, err := run.Spawn(ctx, "run_1_review", "Review the draft.", "")
	fmt.Println(child.ID(), err)
	turn, _ := child.Turn(ctx)
	msg, _ := turn.Message(producers.MessageInfo{})
	msg.Text("It is fine.")
	msg.End("end_turn", nil)
	turn.End("end_turn")
	fmt.Println(child.Finish(ctx), run.Finish(ctx))
	// Output:
	// run_1_review <nil>
	// <nil> <nil>
}

// An agent that starts again ends what its former process left open, and goes on.
func ExampleReadOpen() {
	ctx, log, key := context.Background(), memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	pub, _ := producers.New(producers.Config{Log: log, Key: key})
	crashed, _ := producers.NewRun(producers.RunConfig{Sink: pub, RunID: key.Run})
	turn, _ := crashed.Turn(ctx)
	msg, _ := turn.Message(producers.MessageInfo{})
	msg.Text("It was a dark and")
	pub.Close(ctx)

	open, _, err := producers.ReadOpen(ctx, log, key)
	fmt.Println(open.Any(""), err)
	again, _ := producers.New(producers.Config{Log: log, Key: key})
	defer again.Close(ctx)
	run, _ := producers.NewRun(producers.RunConfig{Sink: again, RunID: key.Run, Open: open})
	fmt.Println(run.Recover(ctx, "the agent started again"))
	open, _, _ = producers.ReadOpen(ctx, log, key)
	fmt.Println(open.Any(""))
	// Output:
	// true <nil>
	// <nil>
	// false
}

func show(ctx context.Context, log *memory.Log, key schema.RunKey) {
	for pack, err := range log.Since(ctx, key, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		for r := range pack.Records(0) {
			fmt.Println(r.Seq, string(r.Type))
		}
	}
}

const answer = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","role":"assistant","model":"claude","content":[]}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"city\":\"Bern\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

`
