package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/edge"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// tenant is the product's; bare messages lie in the same streams under tenants of their own.
const tenant = "bench"

// house is the product as cmd wires it, without an archive, and a bare connection to the same
// server.
type house struct {
	nats       natsServer
	partitions int
	log        *pubjs.Log
	hub        *fanout.Hub
	url        string // of the edge
	client     *http.Client

	bare  *nats.Conn
	js    jetstream.JetStream // on bare
	named int
}

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{nats: startNATS(t), partitions: 8}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	var err error
	h.bare, err = h.dial(t, "bare")
	must(err)
	h.js, err = jetstream.New(h.bare)
	must(err)
	must(natskit.Declare(ctx, h.js, natskit.Layout{Partitions: h.partitions}))
	nc, err := h.dial(t, "product")
	must(err)
	live, err := h.dial(t, "product live")
	must(err)
	h.log, err = pubjs.Open(ctx, nc)
	must(err)
	reader, err := fanjs.Open(ctx, live)
	must(err)
	keys, err := pubjs.OpenKeys(ctx, nc)
	must(err)
	h.hub, err = fanout.New(fanout.Config{Stream: reader, Tail: reader})
	must(err)
	appender, err := producers.NewAppender(producers.AppenderConfig{Log: h.log, Keys: keys})
	must(err)
	srv, err := edge.New(edge.Config{Hub: h.hub, Appender: appender, Protocols: []protocol.Protocol{native.Protocol()},
		DefaultTenant: tenant, DrainWindow: 10 * time.Millisecond})
	must(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	h.url = "http://" + ln.Addr().String()
	serve(t, reader.Run)
	serve(t, h.hub.Run)
	serve(t, func(ctx context.Context) error { return srv.Run(ctx, ln) })
	// One connection for each stream or worker, kept for the next.
	h.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

// serve runs a part until the test ends; the one that started last ends first.
func serve(t testing.TB, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (h *house) dial(t testing.TB, name string) (*nats.Conn, error) {
	nc, err := natskit.Dial(h.nats.url, name)
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, err
}

// name returns a token that was not used before.
func (h *house) name(prefix string) string {
	h.named++
	return prefix + strconv.Itoa(h.named)
}

// runs names n new runs of the product.
func (h *house) runs(n int) []schema.RunKey { return keys(tenant, h.name("run_"), n) }

// bareRuns names n new runs under a tenant that has nothing else, so that what was stored can be
// counted.
func (h *house) bareRuns(n int) []schema.RunKey { return keys(h.name("bare"), "run_", n) }

func keys(tenant, prefix string, n int) []schema.RunKey {
	list := make([]schema.RunKey, n)
	for i := range list {
		list[i] = schema.RunKey{Tenant: tenant, Run: fmt.Sprintf("%s_%04d", prefix, i)}
	}
	return list
}

func (h *house) subject(key schema.RunKey) string { return schema.Subject(key, "", h.partitions) }

func (h *house) stream(key schema.RunKey) string {
	return natskit.RunAddress{Key: key, Partitions: h.partitions}.Stream()
}

// stored counts the messages of a tenant over all streams.
func (h *house) stored(ctx context.Context, tenant string) (n int, err error) {
	for p := range h.partitions {
		s, err := h.js.Stream(ctx, natskit.StreamName(p))
		if err != nil {
			return 0, err
		}
		filter := schema.StorePrefix + "." + strconv.Itoa(p) + "." + tenant + ".>"
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return 0, err
		}
		for _, count := range info.State.Subjects {
			n += int(count)
		}
	}
	return n, nil
}

// hasStored is an error unless each run has exactly this many events.
func (h *house) hasStored(ctx context.Context, runs []schema.RunKey, events int) error {
	for _, key := range runs {
		head, err := h.log.Head(ctx, key, "")
		if err != nil {
			return err
		}
		if int(head.Last) != events {
			return fmt.Errorf("run %s has %d events, %d were acknowledged", key, head.Last, events)
		}
	}
	return nil
}

// hasMessages is the same for bare messages of one tenant.
func (h *house) hasMessages(ctx context.Context, tenant string, want int) error {
	n, err := h.stored(ctx, tenant)
	if err == nil && n != want {
		err = fmt.Errorf("tenant %s has %d messages, %d were acknowledged", tenant, n, want)
	}
	return err
}
