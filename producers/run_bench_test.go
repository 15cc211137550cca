package producers_test

import (
	"context"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

// nothing is a sink that takes everything.
type nothing struct{}

func (nothing) Send(context.Context, ...schema.Event) error { return nil }
func (nothing) Flush(context.Context) error                 { return nil }

// BenchmarkMessageText is what the pen itself costs for each token, without a publisher.
func BenchmarkMessageText(b *testing.B) {
	r, err := producers.NewRun(producers.RunConfig{Sink: nothing{}, RunID: "run_1"})
	if err != nil {
		b.Fatal(err)
	}
	turn, err := r.Turn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var m *producers.Message
	for i := 0; b.Loop(); i++ {
		if i%500 == 0 {
			if m != nil {
				if err := m.End("end_turn", nil); err != nil {
					b.Fatal(err)
				}
			}
			if m, err = turn.Message(producers.MessageInfo{}); err != nil {
				b.Fatal(err)
			}
		}
		if err := m.Text(" token"); err != nil {
			b.Fatal(err)
		}
	}
}
