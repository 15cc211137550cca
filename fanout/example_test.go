package fanout_test

import (
	"context"
	"fmt"

	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// A reader gets everything after its cursor, first from history and then live, without a gap between the two.
func ExampleHub_Subscribe() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	log, key := memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	defer func() { stop(); <-ended }()
	publisher, err := producers.New(producers.Config{Log: log, Key: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(ctx)
	publish := func(typ, payload string) {
		if _, err := publisher.Append(ctx, schema.Event{Type: typ, Payload: []byte(payload)}); err != nil {
			fmt.Println(err)
		}
	}

	publish(schema.TypeTextDelta, `{"text":"before "}`)
	publish(schema.TypeTextDelta, `{"text":"then "}`)
	reader, err := hub.Subscribe(ctx, key, 1) // it has event 1
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	publish(schema.TypeTextDelta, `{"text":"now "}`)
	publish(schema.TypeRunLifecycle, `{"state":"done"}`)
	for {
		batch, err := reader.Next(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, pack := range batch.Packs {
			for record, err := range pack.Records(batch.After) {
				fmt.Println(record.Seq, string(record.Payload()), err)
			}
		}
		if batch.Ended {
			return
		}
	}
	// Output:
	// 2 {"text":"then "} <nil>
	// 3 {"text":"now "} <nil>
	// 4 {"state":"done"} <nil>
}
