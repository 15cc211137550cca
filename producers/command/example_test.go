package command_test

import (
	"context"
	"fmt"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

// An agent obeys the commands of its run, each once.
func ExampleReader() {
	ctx, log, key := context.Background(), memory.New(), schema.RunKey{Tenant: "acme", Run: "run_1"}
	publisher, err := producers.New(producers.Config{Log: log, Key: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(ctx)
	running := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)}
	if _, err := publisher.Append(ctx, running); err != nil {
		fmt.Println(err)
		return
	}
	commands, err := command.New(command.Config{Publisher: publisher})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer commands.Close()

	appender, err := producers.NewAppender(producers.AppenderConfig{Log: log}) // as the edge has one
	if err != nil {
		fmt.Println(err)
		return
	}
	pause := schema.Event{Type: "command.pause", Actor: "user", Payload: []byte(`{"reason":"let me read"}`)}
	if _, err := appender.Append(ctx, key, []schema.Event{pause}, producers.AppendOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	cmd, err := commands.Next(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	paused := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"paused"}`)}
	fmt.Println(cmd.Name, cmd.Reason(), cmd.Commit(ctx, paused)) // the effect and the mark are stored together
	// Output:
	// pause let me read <nil>
}
