package otlp_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	spans "agentstream/adapters/otlp"
	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/protocols/otlp"
	"agentstream/schema"
)

// TestRunSettles: a node settles the traces that have come to it, when nothing more comes, and waits longer for one
// without a root.
func TestRunSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, nodes: edgetest.Share()}
		w.nodes.Pipes = edgetest.NewPipes()
		in := otlp.New(otlp.Config{Settle: 10 * time.Second})
		w.node = w.nodes.Start(t, in.Protocol())
		app, err := producers.NewAppender(producers.AppenderConfig{Log: w.nodes.Log})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- in.Run(ctx, otlp.NewSettler(otlp.SettlerConfig{Log: w.nodes.Log, Appender: app, Settle: in.Settle()}))
		}()
		whole, rootless := traceID(1), traceID(2)
		w.send(spanOf(whole, 1, 0, 0, 9, "root"), chat(rootless, 2, 1, 0, 1, "q", "a", ""))
		time.Sleep(8 * time.Second)
		w.send(chat(whole, 2, 1, 1, 2, "q", "a", "")) // so it is waited for again
		time.Sleep(8 * time.Second)
		if n := w.count(whole, otlp.MarkType); n != 0 {
			t.Errorf("%d marks while spans come", n)
		}
		time.Sleep(5 * time.Second)
		if n := w.count(whole, schema.TypeMessageEnd); n != 2 {
			t.Errorf("%d messages of 2 when nothing more comes", n)
		}
		if n := w.count(rootless, otlp.MarkType); n != 0 {
			t.Errorf("%d marks without a root", n)
		}
		time.Sleep(10 * time.Second * otlp.RootlessTimes)
		if n := w.count(rootless, schema.TypeMessageEnd); n != 2 || w.count(rootless, spans.Type) != 1 {
			t.Errorf("%d messages of 2 without a root", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.node.Stop()
	})
}
