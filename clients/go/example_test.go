package agentstream_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	agentstream "agentstream/clients/go"
	"agentstream/producers"
	"agentstream/schema"
)

// connect returns a client of a server that the example starts, and what ends both.
func connect() (client *agentstream.Client, stop func()) {
	url, stopServer, err := agentstream.StartServer()
	if err != nil {
		log.Fatal(err)
	}
	client, err = agentstream.New(agentstream.Config{BaseURL: url})
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		client.Close()
		if err := stopServer(); err != nil {
			log.Fatal(err)
		}
	}
}

// text returns a piece of a message.
func text(s string) schema.Event {
	return schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":%q}`, s)}
}

// done is the last event of a run.
var done = schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}

// Watch follows a run to its end, over as many connections as that takes.
func ExampleRun_Watch() {
	client, stop := connect()
	defer stop()
	ctx, run := context.Background(), client.Run("hello")
	if _, err := run.Append(ctx, "", text("Hello, "), text("world."), done); err != nil {
		log.Fatal(err)
	}

	stream := run.Watch(ctx, agentstream.Options{Detail: agentstream.DetailFull})
	defer stream.Close()
	for event, err := range stream.All(ctx) {
		if gap := new(agentstream.GapError); errors.As(err, &gap) {
			fmt.Println("missing:", gap) // the stream goes on
			continue
		}
		if err != nil {
			fmt.Println(err) // Options{After: stream.Cursor()} continues from here
			return
		}
		fmt.Println(event.Seq, event.Type, string(event.Payload))
	}
	// Output:
	// 1 text.delta {"text":"Hello, "}
	// 2 text.delta {"text":"world."}
	// 3 run.lifecycle {"state":"done"}
}

// A watcher that was away continues after the last event that it has.
func ExampleStream_Cursor() {
	client, stop := connect()
	defer stop()
	ctx, run := context.Background(), client.Run("hello")
	if _, err := run.Append(ctx, "", text("one "), text("two "), text("three "), done); err != nil {
		log.Fatal(err)
	}

	first := run.Watch(ctx, agentstream.Options{Detail: agentstream.DetailFull})
	event, err := first.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(event.Payload))
	cursor := first.Cursor() // store it
	first.Close()

	second := run.Watch(ctx, agentstream.Options{After: cursor, Detail: agentstream.DetailFull})
	defer second.Close()
	for event, err := range second.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Seq, string(event.Payload))
	}
	// Output:
	// {"text":"one "}
	// 2 {"text":"two "}
	// 3 {"text":"three "}
	// 4 {"state":"done"}
}

// With an idempotency key, a program that crashed before it read the answer may append again.
func ExampleRun_Append() {
	client, stop := connect()
	defer stop()
	ctx, run := context.Background(), client.Run("orders")
	for range 2 {
		receipt, err := run.Append(ctx, "order-4711", text("The order has been placed."))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(receipt.First, receipt.Last, receipt.Replayed)
	}
	// Output:
	// 1 1 false
	// 1 1 true
}

// Commands are events of the run. The state of the run decides which of them are allowed.
func ExampleRun_Command() {
	client, stop := connect()
	defer stop()
	ctx, run := context.Background(), client.Run("job")
	if _, err := client.CreateRun(ctx, agentstream.NewRun{RunID: run.ID()}); err != nil {
		log.Fatal(err)
	}

	pause := agentstream.Command{Name: agentstream.CommandPause, Key: "click-1",
		Payload: map[string]string{"reason": "lunch"}}
	receipt, err := run.Command(ctx, pause)
	fmt.Println(receipt.Last, err)
	_, err = run.Approve(ctx, "")
	fmt.Println(errors.Is(err, agentstream.ErrConflict)) // there is no plan
	_, err = run.Cancel(ctx, "changed my mind")
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// true
	// <nil>
}

// A Sink lets an agent without NATS use the builders of package producers.
func ExampleRun_Sink() {
	client, stop := connect()
	defer stop()
	ctx, id := context.Background(), "agent"
	sink := client.Run(id).Sink(agentstream.SinkConfig{})
	defer sink.Close(ctx)

	run, err := producers.NewRun(producers.RunConfig{Sink: sink, RunID: id})
	if err != nil {
		log.Fatal(err)
	}
	turn, err := run.Turn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer turn.Close() // ends what is open, whatever happens
	message, err := turn.Message(producers.MessageInfo{})
	if err != nil {
		log.Fatal(err)
	}
	message.Text("Hello, ")
	message.Text("world.")
	message.End("end_turn", nil)
	turn.End("end_turn")
	run.Finish(ctx)
	if err := sink.Flush(ctx); err != nil { // errors of the calls above show here at the latest
		log.Fatal(err)
	}

	sum, err := client.Run(id).Snapshot(ctx, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.State, sum.Messages[0].Blocks[0].Text.String())
	// Output:
	// done Hello, world.
}

// Fold adds events up: a page that shows a run needs nothing else.
func ExampleFold() {
	client, stop := connect()
	defer stop()
	ctx, run := context.Background(), client.Run("hello")
	start := schema.Event{Type: schema.TypeMessageStart, Payload: []byte(`{"message_id":"m1","role":"assistant"}`)}
	if _, err := run.Append(ctx, "", start, text("Hello, "), text("world."), done); err != nil {
		log.Fatal(err)
	}

	var sum schema.Fold
	for event, err := range run.Watch(ctx, agentstream.Options{}).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if err := agentstream.Fold(&sum, &event); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(sum.State, sum.Messages[0].Role, sum.Messages[0].Blocks[0].Text.String())
	// Output:
	// done assistant Hello, world.
}

// A Publisher appends to many runs with few requests.
func ExamplePublisher() {
	client, stop := connect()
	defer stop()
	ctx, publisher := context.Background(), client.Publisher()
	for _, id := range []string{"a", "b"} {
		event := text("Hello from " + id)
		receipt, err := publisher.AppendLines(ctx, id, append(agentstream.AppendNew(nil, &event), '\n'))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(id, receipt.First)
	}
	// Output:
	// a 1
	// b 1
}

// Sentinels tell what a caller can do about an error.
func ExampleError() {
	client, stop := connect()
	defer stop()
	_, err := client.Run("nowhere").Info(context.Background())
	fmt.Println(errors.Is(err, agentstream.ErrNotFound))
	if refusal := new(agentstream.Error); errors.As(err, &refusal) {
		fmt.Println(refusal.Status, refusal.Code)
	}
	// Output:
	// true
	// 404 NOT-FOUND
}
