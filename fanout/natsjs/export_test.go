package natsjs

import (
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"agentstream/schema"
)

// CopiesOf returns a function that sends the copy of a pack as the broker would.
func CopiesOf(l *Log, packs []schema.Pack) func(i int) error {
	msgs := make([]*nats.Msg, len(packs))
	for i := range packs {
		p := &packs[i]
		h := nats.Header(p.Headers())
		h["Nats-Sequence"] = []string{strconv.Itoa(1000 + i)}
		h["Nats-Stream"] = []string{"AGENT_0"}
		h["Nats-Subject"] = []string{schema.Subject(p.Key, p.Child, l.partitions)}
		h["Nats-Last-Sequence"] = []string{"999"}
		h["Nats-Time-Stamp"] = []string{"2026-01-01T00:00:00.000000000Z"}
		msgs[i] = &nats.Msg{Subject: strings.TrimSuffix(schema.LiveFilter(p.Key, l.partitions), ">") + schema.RootLane,
			Header: h, Data: p.Body}
	}
	return func(i int) error { return l.nc.PublishMsg(msgs[i]) }
}
