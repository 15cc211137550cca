package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"time"

	"agentstream/edge"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:8088")
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, listener, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// serve serves the protocol over a log in memory until ctx ends, and writes one run into the log.
func serve(ctx context.Context, listener net.Listener, out io.Writer) error {
	events := memory.New()
	hub, err := fanout.New(fanout.Config{Stream: events, Tail: events})
	if err != nil {
		return err
	}
	appender, err := producers.NewAppender(producers.AppenderConfig{Log: events, Keys: &memory.Keys{}})
	if err != nil {
		return err
	}
	server, err := edge.New(edge.Config{
		Hub: hub, Appender: appender, Protocols: []protocol.Protocol{wordsProtocol()}, DrainWindow: time.Second,
	})
	if err != nil {
		return err
	}
	hubContext, stopHub := context.WithCancel(context.WithoutCancel(ctx)) // streams end before what feeds them
	defer stopHub()
	ended := make(chan error, 2)
	go func() { ended <- hub.Run(hubContext) }()
	go func() { ended <- speak(ctx, events) }()
	fmt.Fprintf(out, "curl -N http://%s/words/hello\n", listener.Addr())
	err = server.Run(ctx, listener)
	stopHub()
	return errors.Join(err, <-ended, <-ended)
}

// speak writes the run hello, slowly enough to watch it.
func speak(ctx context.Context, events producers.Log) error {
	key := schema.RunKey{Tenant: "default", Run: "hello"}
	publisher, err := producers.New(producers.Config{Log: events, Key: key})
	if err != nil {
		return err
	}
	defer publisher.Close(context.WithoutCancel(ctx))
	run, err := producers.NewRun(producers.RunConfig{Sink: publisher, RunID: key.Run})
	if err != nil {
		return err
	}
	turn, err := run.Turn(ctx)
	if err != nil {
		return err
	}
	defer turn.Close()
	message, err := turn.Message(producers.MessageInfo{})
	if err != nil {
		return err
	}
	for _, word := range strings.SplitAfter("Every protocol is a view of one log.", " ") {
		if err := message.Text(word); err != nil {
			return nil // interrupted
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.Join(message.End("end_turn", nil), turn.End("end_turn"), run.Finish(ctx))
}
