package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/edge"
	"agentstream/internal/natskit"
	"agentstream/persister"
	perjs "agentstream/persister/natsjs"
)

// Inspector looks at the streams of the log: whether they are there, as they were declared, with all of their replicas,
// and not empty beside an archive that is not. It is safe for concurrent use.
type Inspector struct {
	js     jetstream.JetStream
	layout natskit.Layout // as it was when the process began
	stored perjs.Offsets  // nil: nobody knows what is stored
	m      *process.Metrics

	payload payload

	mu      sync.Mutex
	at      time.Time
	streams []natskit.StreamHealth
}

// NewInspector returns an Inspector of a log that had this layout when the process began. stored may be nil.
func NewInspector(js jetstream.JetStream, l natskit.Layout, stored perjs.Offsets, m *process.Metrics) *Inspector {
	return &Inspector{js: js, layout: l, stored: stored, m: m}
}

const (
	inspectEvery = 10 * time.Second // without a request for it
	inspectFresh = time.Second      // so old may be what a check tells
	inspectWait  = 2 * time.Second  // for the answer of a stream
)

// look returns the streams as they are now, or were a moment ago.
func (i *Inspector) look(ctx context.Context) []natskit.StreamHealth {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.at) < inspectFresh {
		return i.streams
	}
	once, cancel := context.WithTimeout(context.WithoutCancel(ctx), inspectWait)
	defer cancel()
	i.streams, i.at = natskit.Inspect(once, i.js, i.layout), time.Now()
	i.m.SetStreams(i.streams)
	return i.streams
}

// Run keeps the metrics up to date until ctx ends.
func (i *Inspector) Run(ctx context.Context) error {
	tick := time.NewTicker(inspectEvery)
	defer tick.Stop()
	nc := i.js.Conn()
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	for {
		_ = i.checkContents(ctx)  // the metric has the answer
		_, _ = i.payload.look(nc) // so that a bound that was changed is known before it costs the connection
		select {
		case <-tick.C:
		case <-closed:
			if err := nc.LastError(); err != nil && ctx.Err() == nil { // else it was we who closed it
				return fmt.Errorf("nats: the connection is closed for good: %w", err)
			}
			closed = nil
		case <-ctx.Done():
			return nil
		}
	}
}

// payload is how large a message the connection's server takes, as it was found a moment ago at the earliest.
type payload struct {
	mu   sync.Mutex
	at   time.Time
	most int64
	err  error
}

// payloadFresh is how old the answer may be: it takes a connection.
const payloadFresh = 5 * time.Second

func (p *payload) look(nc *nats.Conn) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) >= payloadFresh && nc.IsConnected() {
		p.most, p.err = natskit.LearnPayload(nc)
		p.at = time.Now()
	}
	return p.most, p.err
}

// checkPayload returns an error while the server takes no message that is as large as a pack may be.
func (i *Inspector) checkPayload(context.Context) error {
	most, err := i.payload.look(i.js.Conn())
	if err != nil || most >= natskit.NeedPayload {
		return nil // that it does not answer is told by the check of the connection
	}
	return natskit.TooSmall(i.js.Conn().ConnectedUrlRedacted(), most)
}

// Checks are those of readiness. That the server takes no pack of the largest size, that a replica is missing or late,
// or that a stream does not answer for a while, as during an election, keeps no node from serving.
func (i *Inspector) Checks() []edge.Check {
	return []edge.Check{
		{Name: "streams", Run: i.checkStreams},
		{Name: "replicas", Run: i.checkReplicas, Optional: true},
		{Name: "contents", Run: i.checkContents, Optional: true},
		{Name: "payload", Run: i.checkPayload, Optional: true},
	}
}

// checkStreams returns which streams are missing, or are such that events are lost or refused.
func (i *Inspector) checkStreams(ctx context.Context) error {
	var missing, wrong []string
	for _, h := range i.look(ctx) {
		if h.Missing {
			missing = append(missing, h.Name)
		}
		for _, text := range h.Wrong {
			wrong = append(wrong, h.Name+": "+text)
		}
	}
	var errs []error
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("the log lacks %s; run: %s", strings.Join(missing, ", "), i.layout.Command()))
	}
	if len(wrong) > 0 {
		errs = append(errs, fmt.Errorf("streams are not as they are to be: %s", strings.Join(wrong, "; ")))
	}
	return errors.Join(errs...)
}

// checkReplicas returns what is wrong with the streams' replicas, and which streams do not answer.
func (i *Inspector) checkReplicas(ctx context.Context) error {
	var texts []string
	for _, h := range i.look(ctx) {
		if h.Silent != nil {
			texts = append(texts, h.Silent.Error())
		}
		for _, text := range h.Odd {
			texts = append(texts, h.Name+": "+text)
		}
		texts = append(texts, h.Lagging()...)
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// checkContents returns an error while the log is empty and something of it is stored: it is another log than it was.
func (i *Inspector) checkContents(ctx context.Context) error {
	streams := i.look(ctx)
	if i.stored == nil {
		return nil
	}
	for _, h := range streams {
		if h.Log && (h.Silent != nil || h.Last > 0) {
			i.m.EmptyLog(false)
			return nil // the log is not empty, or may not be
		}
	}
	once, cancel := context.WithTimeout(ctx, inspectWait)
	defer cancel()
	offsets, err := i.stored.Offsets(once)
	if err != nil {
		return nil // the check of the archive tells
	}
	n := countKnown(offsets)
	i.m.EmptyLog(n > 0)
	if n == 0 {
		return nil
	}
	return fmt.Errorf("the log is empty, and the archive has stored messages of %d of its streams: NATS has lost its data. "+
		"What was acknowledged and not stored is lost. Bring the data of NATS back, or run: %s; then: agentstream doctor", n, i.layout.Command())
}

// countKnown counts the streams of which something is stored, or was stored before they were made again.
func countKnown(offsets []persister.StoredOffset) (n int) {
	for _, o := range offsets {
		if o.Position > 0 || o.Generation > 0 {
			n++
		}
	}
	return n
}
