package sink

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/schema"
	"agentstream/tap"
)

// subject publishes events into a stream of JetStream, below a subject: PREFIX.<tenant>.<run>. The key is the
// Nats-Msg-Id.
type subject struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	prefix string
}

func openNATS(_ context.Context, u *url.URL, o Options) (tap.Receiver, error) {
	prefix := strings.Trim(u.Path, "/")
	q := u.Query()
	if err := checkQuery(q, "creds"); err != nil {
		return nil, err
	}
	if prefix == "" || strings.ContainsAny(prefix, " \t*>/") || strings.HasPrefix(prefix, schema.StorePrefix+".") ||
		prefix == schema.StorePrefix {
		return nil, errors.New("want nats://HOST/SUBJECT; the subject is followed by tenant and run, and is none of the log")
	}
	opts := []nats.Option{nats.Timeout(o.Timeout)}
	if creds := q.Get("creds"); creds != "" {
		opts = append(opts, nats.UserCredentials(creds))
	}
	target := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}
	nc, err := natskit.Dial(target.String(), "agentstream tap", opts...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(flight))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &subject{nc: nc, js: js, prefix: prefix + "."}, nil
}

// flight is the number of messages that are not acknowledged, at most.
const flight = 256

// Write implements tap.Receiver. The stream's duplicate window drops what comes twice within it.
func (s *subject) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	waiting := make([]jetstream.PubAckFuture, 0, flight)
	wait := func() error {
		for _, f := range waiting {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return fmt.Errorf("publish: %w", err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		waiting = waiting[:0]
		return nil
	}
	for i := range batch {
		e := &batch[i]
		m := &nats.Msg{Subject: s.prefix + e.Run.Tenant + "." + e.Run.Run, Data: e.Line,
			Header: nats.Header{jetstream.MsgIDHeader: {e.Key()}, "Agent-Type": {e.Type}}}
		f, err := s.js.PublishMsgAsync(m)
		if errors.Is(err, nats.ErrMaxPayload) {
			return nil, fmt.Errorf("%w: %w", persister.ErrPoison, err)
		}
		if err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		waiting = append(waiting, f)
		if len(waiting) == flight {
			if err := wait(); err != nil {
				return nil, err
			}
		}
	}
	return nil, wait()
}

// Close implements tap.Receiver.
func (s *subject) Close() error {
	s.nc.Close()
	return nil
}
