package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	b := bill{out: out, through: make(map[string]int64)}
	err = tap(ctx, js, "bill", 30*time.Second, b.add)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// bill prints one line for each message. It is safe for concurrent use: every partition has a reader.
type bill struct {
	out io.Writer

	mu      sync.Mutex
	through map[string]int64 // newest seq, by tenant and run. A real tap stores it with what it writes
}

// add prints the messages of a pack, each once.
func (b *bill) add(msg jetstream.Msg) error {
	tokens := strings.Split(msg.Subject(), ".") // agent.<partition>.<tenant>.<run>.<child>
	if len(tokens) != 5 || msg.Headers().Get("Agent-Seq") == "" {
		return nil // not a pack
	}
	tenant, run := tokens[2], tokens[3]
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range bytes.Lines(msg.Data()) {
		var event struct {
			Type    string
			Seq     int64
			Payload struct{ Usage map[string]any }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("%s: %w", msg.Subject(), err)
		}
		if event.Seq <= b.through[tenant+"."+run] {
			continue // the pack came again
		}
		b.through[tenant+"."+run] = event.Seq
		if event.Type == "message.end" && len(event.Payload.Usage) > 0 {
			fmt.Fprintln(b.out, tenant, run, event.Payload.Usage["input_tokens"], event.Payload.Usage["output_tokens"])
		}
	}
	return nil
}
