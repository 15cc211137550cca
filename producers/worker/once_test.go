package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/producers/worker/workertest"
	"agentstream/schema"
)

// once begins a run that is answered once, with a message.
func (o *office) once(run, more string) {
	o.t.Helper()
	key := schema.RunKey{Tenant: "acme", Run: run}
	_, err := o.appender.Append(o.t.Context(), key, []schema.Event{
		{Type: schema.TypeSessionCreated, Actor: "user", Payload: json.RawMessage(`{"once":true,"model":"m"` + more + `}`)},
		{Type: schema.TypeCommandMessage, Actor: "user", Payload: json.RawMessage(`{"content":"hello"}`)},
	}, producers.AppendOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
}

// ended waits for the end of a run, and returns its state and reason, and the types of the pack that the end is in.
func (o *office) ended(run string) (end string, pack []string) {
	o.t.Helper()
	for over := time.Now().Add(20 * time.Second); time.Now().Before(over); time.Sleep(5 * time.Millisecond) {
		for p, err := range o.log.Since(o.t.Context(), schema.RunKey{Tenant: "acme", Run: run}, 0) {
			if err != nil {
				o.t.Fatal(err)
			}
			pack = pack[:0]
			for r, err := range p.Records(0) {
				if err != nil {
					o.t.Fatal(err)
				}
				pack = append(pack, string(r.Type))
				var f struct{ State, Reason string }
				if _ = json.Unmarshal(r.Payload(), &f); string(r.Type) == schema.TypeRunLifecycle {
					end = f.State + " " + f.Reason
				}
			}
		}
		if end != "" {
			return end, pack
		}
	}
	o.t.Fatalf("%s has not ended: %v", run, o.events(run))
	return "", nil
}

func wantTail(t *testing.T, pack []string) {
	t.Helper()
	want := []string{schema.TypeCommandsTaken, schema.TypeTurnEnd, schema.TypeRunLifecycle}
	if len(pack) < 3 || !slices.Equal(pack[len(pack)-3:], want) {
		t.Errorf("the last pack is %v, want its end to be %v", pack, want)
	}
}

// A run with once ends with its turn, in one pack, however that went; what is said to it afterwards begins nothing.
func TestOnce(t *testing.T) {
	o := newOffice(t)
	o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		var f struct{ How string }
		if err := json.Unmarshal(q.Session, &f); err != nil {
			return "", err
		}
		m, err := q.Turn.Message(producers.MessageInfo{})
		if err != nil || f.How == "silent" {
			<-ctx.Done()
			return "", errors.Join(err, context.Cause(ctx))
		}
		if err := m.Text("re: " + q.Text()); err != nil {
			return "", err
		}
		switch f.How {
		case "":
			return "", m.End("end_turn", nil)
		case "open":
			return "", nil
		case "fail":
			return "", errors.New("the model has failed")
		}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	for name, c := range map[string]struct{ more, end string }{
		"well":   {"", "done "},
		"failed": {`,"how":"fail"`, "error the model has failed"},
		"open":   {`,"how":"open"`, "error broken: "},
		"first":  {`,"how":"silent","deadlines":{"first_ms":1500}`, "error late: no delta within 1.5s"},
		"idle":   {`,"how":"waits","deadlines":{"first_ms":60000,"idle_ms":150}`, "error late: no delta for 150ms"},
		"total":  {`,"how":"waits","deadlines":{"idle_ms":60000,"total_ms":1500}`, "error late: not over within 1.5s"},
	} {
		o.once(name, c.more)
		end, pack := o.ended(name)
		if !strings.HasPrefix(end, c.end) {
			t.Errorf("%s: ended %q, want %q", name, end, c.end)
		}
		wantTail(t, pack)
		if n := count(o.events(name), schema.TypeTurnStart); n != 1 {
			t.Errorf("%s: %d turns", name, n)
		}
	}
	o.once("cancelled", `,"how":"waits"`)
	o.await("cancelled", "text.delta re: hello", 1)
	o.put("cancelled", "command.cancel", `{"reason":"enough"}`)
	end, pack := o.ended("cancelled")
	if end != "aborted enough" {
		t.Errorf("cancelled: ended %q", end)
	}
	wantTail(t, pack)
}

// A turn that was begun by a worker that is gone is not begun again: the run ends in error, whatever was stored.
func TestOnceIsNotBegunAgain(t *testing.T) {
	o := newOffice(t)
	for name, events := range map[string][]schema.Event{
		"at once": {{Type: schema.TypeTurnStart, Payload: json.RawMessage(`{"turn_id":"t1"}`)}},
		"half": {{Type: schema.TypeTurnStart, Payload: json.RawMessage(`{"turn_id":"t1"}`)},
			{Type: schema.TypeMessageStart, Payload: json.RawMessage(`{"message_id":"m1","role":"assistant"}`)},
			{Type: schema.TypeTextDelta, Payload: json.RawMessage(`{"text":"half"}`)}},
		"closed": {{Type: schema.TypeTurnStart, Payload: json.RawMessage(`{"turn_id":"t1"}`)},
			{Type: schema.TypeTurnEnd, Payload: json.RawMessage(`{"turn_id":"t1","stop_reason":"cancelled"}`)}},
	} {
		run := strings.ReplaceAll(name, " ", "_")
		o.once(run, "")
		pub, err := producers.New(producers.Config{Log: o.log, Key: schema.RunKey{Tenant: "acme", Run: run}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pub.Append(t.Context(), events...); err != nil {
			t.Fatal(err)
		}
		if err := pub.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var asked atomic.Int64
	o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		asked.Add(1)
		return workertest.Echo(ctx, q)
	}})
	for _, run := range []string{"at_once", "half", "closed"} {
		if end, _ := o.ended(run); !strings.HasPrefix(end, "error broken: ") {
			t.Errorf("%s: ended %q", run, end)
		}
		if n := count(o.events(run), schema.TypeTurnStart); n != 1 {
			t.Errorf("%s: %d turns", run, n)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("an answer was asked for %d times", n)
	}
}

// A worker that ends in the middle of a turn writes nothing of it, and leaves the run to the next one, which ends it.
func TestOnceIsLeftByItsWorker(t *testing.T) {
	o := newOffice(t)
	began := make(chan struct{})
	leave := o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		close(began)
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	o.once("r1", "")
	<-began
	leave()
	if all := o.events("r1"); all[len(all)-1] != schema.TypeTurnStart {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
	o.staff(worker.Config{Answer: workertest.Echo})
	end, pack := o.ended("r1")
	if !strings.HasPrefix(end, "error broken: ") {
		t.Errorf("ended %q", end)
	}
	wantTail(t, pack)
}

// Of all who see that a deadline has passed one ends the run; before that none does.
func TestExpire(t *testing.T) {
	o := newOffice(t)
	o.once("r1", `,"deadlines":{"first_ms":60000,"idle_ms":30000,"total_ms":120000}`)
	o.session("s1")
	key := schema.RunKey{Tenant: "acme", Run: "r1"}
	cfg := producers.Config{Log: o.log, Key: key, Reasons: producers.Reasons{Timeout: "late"}}
	ended, next, err := producers.Expire(t.Context(), cfg, time.Now())
	if left := time.Until(next); ended || err != nil || left < 20*time.Second || left > time.Minute {
		t.Fatalf("ended %v, next in %v, %v", ended, left, err)
	}
	late := time.Now().Add(time.Hour)
	results := make(chan string)
	for range 4 {
		go func() {
			ended, _, err := producers.Expire(context.WithoutCancel(t.Context()), cfg, late)
			results <- fmt.Sprint(ended, err)
		}()
	}
	n := 0
	for range 4 {
		switch r := <-results; r {
		case "true<nil>", "true <nil>":
			n++
		case "false<nil>", "false <nil>":
		default:
			t.Error(r)
		}
	}
	if n != 1 {
		t.Errorf("%d have ended it", n)
	}
	if end, _ := o.ended("r1"); end != "error late: no delta within 1m0s" {
		t.Errorf("ended %q", end)
	}
	if n := count(o.events("r1"), schema.TypeRunLifecycle); n != 1 {
		t.Errorf("%d ends", n)
	}
	for _, run := range []string{"r1", "s1", "none"} {
		cfg.Key.Run = run
		if ended, next, err := producers.Expire(t.Context(), cfg, late); ended || !next.IsZero() || err != nil {
			t.Errorf("%s: ended %v, next %v, %v", run, ended, next, err)
		}
	}
}
