package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"

	"github.com/nats-io/nats.go"

	"agentstream/schema"
	"agentstream/tap"
	"agentstream/tap/natsjs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := follow(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// follow prints the tokens of every message that ends, until ctx ends.
func follow(ctx context.Context, url string, out io.Writer) error {
	conn, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	member, err := natsjs.Join(ctx, conn, tap.Config{
		Spec: tap.Spec{Name: "bill", Types: []string{"message.end"}},
		Sink: &bill{out: out, through: map[schema.RunKey]schema.Seq{}},
	})
	if err != nil {
		return err
	}
	return member.Run(ctx)
}

// bill prints one line for each message. It is safe for concurrent use: every partition is written by a goroutine.
type bill struct {
	out io.Writer

	mu      sync.Mutex
	through map[schema.RunKey]schema.Seq // a real tap stores it with what it writes
}

// Write prints the messages of a batch, each once.
func (b *bill) Write(_ context.Context, batch []tap.Event) (refused []tap.Refusal, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, event := range batch {
		if event.Seq <= b.through[event.Run] {
			continue // the batch came again
		}
		var line struct {
			Payload struct{ Usage map[string]any }
		}
		if err := json.Unmarshal(event.Line, &line); err != nil {
			refused = append(refused, tap.Refusal{Event: i, Detail: err.Error()})
			continue
		}
		b.through[event.Run] = event.Seq
		if usage := line.Payload.Usage; len(usage) > 0 {
			fmt.Fprintln(b.out, event.Run.Tenant, event.Run.Run, usage["input_tokens"], usage["output_tokens"])
		}
	}
	return refused, nil
}

// Close has nothing to close.
func (b *bill) Close() error { return nil }
