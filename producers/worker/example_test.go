package worker_test

import (
	"context"
	"fmt"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// A worker answers the messages of sessions. In production a follower of the log hands it the packs, such as
// natsjs.RefillLog.Follow; here they are read from a log in memory.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	log, key := memory.New(), schema.RunKey{Tenant: "acme", Run: "session_1"}
	answered := make(chan string)
	w, err := worker.New(worker.Config{Log: log, Answer: func(_ context.Context, q *worker.Task) (string, error) {
		message, err := q.Turn.Message(producers.MessageInfo{Model: "echo"})
		if err != nil {
			return "", err
		}
		if err := message.Text("You said: " + q.Text()); err != nil {
			return "", err
		}
		answered <- q.Text()
		return "end_turn", message.End("end_turn", nil)
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	appender, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		fmt.Println(err)
		return
	}
	events := []schema.Event{
		{Type: schema.TypeSessionCreated, Actor: "user", Payload: []byte(`{}`)},
		{Type: schema.TypeCommandMessage, Actor: "user", Payload: []byte(`{"content":"Hello"}`)},
	}
	if _, err := appender.Append(ctx, key, events, producers.AppendOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	settled := make(chan struct{}, 1)
	for pack, err := range log.Since(ctx, key, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		w.Receive(pack, func() { settled <- struct{}{} })
	}
	fmt.Println(<-answered)
	<-settled // the end of the turn and the mark that the message is taken are stored, in one pack
	stop()
	fmt.Println(<-ended)
	// Output:
	// Hello
	// <nil>
}
