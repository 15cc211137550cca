package serve

import (
	"context"
	"errors"
	"runtime/metrics"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/fanout"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// latestHealth is how many states of a node wait for a client that is behind; older ones are left out.
const latestHealth = 8

// lookEvery is how often a node looks at how it is.
const lookEvery = 2 * time.Second

// healthOf returns how this node is. What it does not know is 0.
func healthOf(ctx context.Context, c *protocol.Call) *runtimev1.RuntimeHealthEvent {
	if failing := c.Failing(ctx); len(failing) > 0 {
		return sampleHealth(runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_DEGRADED,
			"not available: "+strings.Join(failing, ", "))
	}
	return sampleHealth(runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_READY, "")
}

// sampleHealth returns the state of the server with what it uses now.
func sampleHealth(status runtimev1.RuntimeHealthStatus, reason string) *runtimev1.RuntimeHealthEvent {
	used := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(used)
	return &runtimev1.RuntimeHealthEvent{Status: status, Reason: reason, MemoryBytes: int64(used[0].Value.Uint64()),
		SampledAt: timestamppb.New(time.Now())}
}

// health sends this node's state, then its changes: the latest ones to a client that is behind.
func health(c *protocol.Call, in dialect.Input, to protocol.Sending) error {
	if _, err := nimi.Read(in.Body, &runtimev1.SubscribeRuntimeHealthEventsRequest{}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(c.Context())
	states, done := make(chan *runtimev1.RuntimeHealthEvent, latestHealth), make(chan struct{})
	go func() {
		defer close(done)
		watchHealth(ctx, c, to.Closing, states)
	}()
	defer func() { stop(); <-done }()
	for n := uint64(1); ; n++ {
		select {
		case m := <-states:
			m.Sequence = n
			b, err := proto.Marshal(m)
			if err == nil {
				err = to.Send(b)
			}
			if err != nil {
				return err
			}
			if m.GetStatus() == runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_STOPPING {
				<-time.After(transport.Notice) // also when the stream's turn has come already
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchHealth puts how the node is into states whenever it changes, until the node goes away or ctx ends.
func watchHealth(ctx context.Context, c *protocol.Call, closing <-chan struct{},
	states chan *runtimev1.RuntimeHealthEvent) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last *runtimev1.RuntimeHealthEvent
	for {
		if m := healthOf(ctx, c); m.GetStatus() != last.GetStatus() || m.GetReason() != last.GetReason() {
			last = m
			note(states, m)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-closing:
			note(states, sampleHealth(runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_STOPPING, ""))
			return
		}
	}
}

// note puts a state into a queue of which it is the only writer, in the place of the oldest when it is full.
func note(states chan *runtimev1.RuntimeHealthEvent, m *runtimev1.RuntimeHealthEvent) {
	for {
		select {
		case states <- m:
			return
		default:
		}
		select {
		case <-states:
		default:
		}
	}
}

func getHealth(ctx context.Context, c *protocol.Call,
	_ *runtimev1.GetRuntimeHealthRequest) (*runtimev1.GetRuntimeHealthResponse, error) {
	m := healthOf(ctx, c)
	return &runtimev1.GetRuntimeHealthResponse{Status: m.GetStatus(), Reason: m.GetReason(),
		MemoryBytes: m.GetMemoryBytes(), SampledAt: m.GetSampledAt()}, nil
}

// fold returns the state of a feed, an empty one when nobody has fed it.
func fold(ctx context.Context, c *protocol.Call, feed string) (schema.Head, *nimi.Job, error) {
	head, j, err := protocol.Newest[*nimi.Job](ctx, c, dialect.Request{Run: nimi.FeedRun(feed), Stream: nimi.StreamJob})
	if errors.Is(err, fanout.ErrNotFound) {
		return head, &nimi.Job{}, nil
	}
	return head, j, err
}

func listProviders(ctx context.Context, c *protocol.Call,
	_ *runtimev1.ListAIProviderHealthRequest) (*runtimev1.ListAIProviderHealthResponse, error) {
	_, j, err := fold(ctx, c, nimi.StreamProvider)
	if err != nil {
		return nil, err
	}
	answer := &runtimev1.ListAIProviderHealthResponse{}
	for _, p := range j.Providers() {
		answer.Providers = append(answer.Providers,
			&runtimev1.AIProviderHealthSnapshot{ProviderName: p.GetProviderName(), State: p.GetState(), Reason: p.GetReason(),
				ConsecutiveFailures: p.GetConsecutiveFailures(), LastChangedAt: p.GetLastChangedAt(),
				LastCheckedAt: p.GetLastCheckedAt(), SubHealth: p.GetSubHealth()})
	}
	return answer, nil
}

func accountStatus(ctx context.Context, c *protocol.Call,
	_ *runtimev1.GetAccountSessionStatusRequest) (*runtimev1.GetAccountSessionStatusResponse, error) {
	_, j, err := fold(ctx, c, nimi.StreamAccount)
	if err != nil {
		return nil, err
	}
	a := j.Account()
	return &runtimev1.GetAccountSessionStatusResponse{State: a.GetState(), AccountProjection: a.GetAccountProjection(),
		ReasonCode: a.GetReasonCode(), AccountReasonCode: a.GetAccountReasonCode()}, nil
}

// ofAccount sends a client first how its account is now, then what is kept behind its number. One whose number is older
// than that, or is none of this feed, learns that it has missed something, and gets only what comes from now on.
func ofAccount(c *protocol.Call, req *dialect.Request) error {
	ctx, cancel := c.LogContext()
	defer cancel()
	head, j, err := fold(ctx, c, nimi.StreamAccount)
	if err != nil {
		return err
	}
	truncated := req.Cursor.Seq > head.Last
	if after := req.Cursor.Seq; after > 0 && after < head.Last {
		for _, err := range c.Records(ctx, req.Run, after, after+1) {
			truncated = errors.Is(err, fanout.ErrExpired)
			break
		}
	}
	if truncated {
		req.Cursor.Seq = head.Last
	}
	req.Form, err = nimi.Snapshot(j.Account(), req.Cursor.Seq, truncated)
	return err
}

// maxTransfers is how many of the newest records are looked at for transfers.
const maxTransfers = 1024

// listTransfers answers with the newest state of each transfer, oldest first.
func listTransfers(ctx context.Context, c *protocol.Call,
	_ *runtimev1.ListLocalTransfersRequest) (*runtimev1.ListLocalTransfersResponse, error) {
	answer, run := &runtimev1.ListLocalTransfersResponse{}, nimi.FeedRun(nimi.StreamTransfer)
	head, err := c.Head(ctx, run)
	if errors.Is(err, fanout.ErrNotFound) {
		return answer, nil
	}
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for r, err := range c.Records(ctx, run, max(0, head.Last-maxTransfers), head.Last) {
		if err != nil {
			return nil, err
		}
		m := &runtimev1.LocalTransferSessionSummary{}
		if string(r.Type) != nimi.FeedType(nimi.StreamTransfer) || nimi.FeedJSON.Unmarshal(r.Payload(), m) != nil {
			continue
		}
		if i, ok := at[m.GetInstallSessionId()]; ok {
			answer.Transfers[i] = m
			continue
		}
		at[m.GetInstallSessionId()] = len(answer.Transfers)
		answer.Transfers = append(answer.Transfers, m)
	}
	return answer, nil
}
