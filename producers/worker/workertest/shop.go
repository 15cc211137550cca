package workertest

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// Tenant is the tenant of all runs of a [Shop].
const Tenant = "acme"

// Shop is a real log with a worker.
type Shop struct {
	Trace string // the traceparent with which messages come; "": none

	t        *testing.T
	log      *natsjs.Log
	appender *producers.Appender
}

// New starts a worker with what cfg has of Answer and hooks; the log's parts and the logger are set here. What runs
// beside it returns when its context ends; an error of it fails the test.
func New(t *testing.T, cfg worker.Config, beside ...func(context.Context, *natsjs.Log, *slog.Logger) error) *Shop {
	t.Helper()
	s := &Shop{t: t}
	var err error
	s.log, err = natsjs.Open(t.Context(), testkit.NATS(t).Conn)
	if err != nil {
		t.Fatal(err)
	}
	s.appender, err = producers.NewAppender(producers.AppenderConfig{Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg.Log, cfg.Waker, cfg.Attend, cfg.Ask, cfg.Logger = s.log, s.log, s.log.Attend, s.log.Ask, logger
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	all := []func() error{
		func() error { return w.Run(ctx) },
		func() error {
			return s.log.Follow(ctx, natsjs.FollowConfig{Name: "answers", Logger: logger}, w.Receive)
		},
	}
	for _, run := range beside {
		all = append(all, func() error { return run(ctx, s.log, logger) })
	}
	var group sync.WaitGroup
	for _, run := range all {
		group.Go(func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); group.Wait() })
	return s
}

// Ask begins a run that is answered once. more are fields of session.created, message those of the command.
func (s *Shop) Ask(run, more, message string) {
	s.t.Helper()
	more = strings.NewReplacer("\n", "", "\t", "").Replace(more)
	_, err := s.appender.Append(s.t.Context(), schema.RunKey{Tenant: Tenant, Run: run}, []schema.Event{
		{Type: schema.TypeSessionCreated, Actor: "user", Payload: json.RawMessage(`{"once":true` + more + `}`)},
		{Type: schema.TypeCommandMessage, Actor: "user", Payload: json.RawMessage(message)},
	}, producers.AppendOptions{Whole: true, Trace: s.Trace})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Events returns a run.
func (s *Shop) Events(run string) (out []schema.Event) {
	s.t.Helper()
	for p, err := range s.log.Since(s.t.Context(), schema.RunKey{Tenant: Tenant, Run: run}, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				s.t.Fatal(err)
			}
			e, err := r.Event()
			if err != nil {
				s.t.Fatal(err)
			}
			out = append(out, e)
		}
	}
	return out
}

// Await waits for the end of a run, and returns its events and its state with the reason.
func (s *Shop) Await(run string) ([]schema.Event, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		all := s.Events(run)
		if len(all) > 0 && all[len(all)-1].Type == schema.TypeRunLifecycle {
			var f struct{ State, Reason string }
			err := json.Unmarshal(all[len(all)-1].Payload, &f)
			if err != nil {
				s.t.Fatal(err)
			}
			return all, strings.TrimSpace(f.State + " " + f.Reason)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("%s has not ended", run)
		}
	}
}

// Echo answers a question by a message that repeats it, in one delta.
func Echo(_ context.Context, q *worker.Task) (string, error) {
	m, err := q.Turn.Message(producers.MessageInfo{})
	if err != nil {
		return "", err
	}
	if err := m.Text("re: " + q.Text()); err != nil {
		return "", err
	}
	return "", m.End("end_turn", nil)
}
