package natsjs_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/cputime"
	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// BenchmarkAppendInProcess is one append of a delta by way of a server in this process, as in dev, by one caller and by
// one for each of 64 runs. cpu is that of the whole process, the server's part included.
func BenchmarkAppendInProcess(b *testing.B) {
	for _, runs := range []int{1, 64} {
		b.Run(strconv.Itoa(runs), func(b *testing.B) {
			host, err := natskit.Start(natskit.Embedded{StoreDir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer host.Stop()
			nc, err := natskit.Dial("", b.Name(), nats.InProcessServer(host))
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err == nil {
				err = natskit.Declare(b.Context(), js, natskit.Layout{Alone: true})
			}
			if err != nil {
				b.Fatal(err)
			}
			l, err := natsjs.OpenWith(b.Context(), nc, natsjs.Config{Short: true, Stored: func(schema.Pack, bool) {}})
			if err != nil {
				b.Fatal(err)
			}
			app, err := producers.NewAppender(producers.AppenderConfig{Log: l})
			if err != nil {
				b.Fatal(err)
			}
			appendAll(b, app, runs)
		})
	}
}

func appendAll(b *testing.B, app *producers.Appender, runs int) {
	batch := []schema.Event{{Type: schema.TypeTextDelta,
		Payload: []byte(`{"text":"` + strings.Repeat("token ", 30) + `"}`)}}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	before := cputime.Process()
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			key := schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}
			for left.Add(-1) >= 0 {
				if _, err := app.Append(b.Context(), key, batch, producers.AppendOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64((cputime.Process()-before).Microseconds())/float64(b.N), "µs-cpu/op")
}
