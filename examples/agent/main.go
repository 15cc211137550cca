package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/producers"
	"agentstream/schema"
)

func main() {
	config := agentstream.Config{BaseURL: os.Getenv("AGENTSTREAM_SERVER"), Token: os.Getenv("AGENTSTREAM_TOKEN")}
	if err := play(context.Background(), config, "tutorial"); err != nil {
		log.Fatal(err)
	}
}

// play plays one run: it says a sentence word by word, and stops when somebody cancels the run.
func play(ctx context.Context, config agentstream.Config, id string) error {
	client, err := agentstream.New(config)
	if err != nil {
		return err
	}
	defer client.Close()
	created, err := client.CreateRun(ctx, agentstream.NewRun{RunID: id})
	if err != nil {
		return err
	}
	sink := client.Run(id).Sink(agentstream.SinkConfig{})
	defer sink.Close(ctx)
	run, err := producers.NewRun(producers.RunConfig{Sink: sink, RunID: id})
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go obey(watching, client.Run(id), created.Last, run)

	err = speak(ctx, run)
	if errors.Is(err, producers.ErrOver) { // cancelled: obey has written the end
		log.Print("run ", id, " was cancelled")
		return nil
	}
	if err != nil {
		return run.Fail(ctx, err)
	}
	log.Print("run ", id, " is done")
	return sink.Flush(ctx)
}

// speak writes one turn with one message.
func speak(ctx context.Context, run *producers.Run) error {
	turn, err := run.Turn(ctx)
	if err != nil {
		return err
	}
	defer turn.Close() // ends what is open, whatever happens
	message, err := turn.Message(producers.MessageInfo{})
	if err != nil {
		return err
	}
	for _, word := range strings.SplitAfter("Pelicans fish together, in a half circle.", " ") {
		if err := message.Text(word); err != nil {
			return err
		}
		select {
		case <-turn.Context().Done(): // cancelled
			return context.Cause(turn.Context())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return errors.Join(message.End("end_turn", nil), turn.End("end_turn"), run.Finish(ctx))
}

// obey waits for a command to cancel the run. It returns with the run, or with ctx.
func obey(ctx context.Context, handle *agentstream.Run, after schema.Seq, run *producers.Run) {
	commands := agentstream.Options{After: after, Types: []string{"command.cancel"}}
	for command, err := range handle.Watch(ctx, commands).All(ctx) {
		if err == nil {
			run.Receive(&command)
			_ = run.Cancel(ctx, "cancelled by the user") // an error stops speak as well
			return
		}
	}
}
