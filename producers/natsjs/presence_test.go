package natsjs_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/producers/reaper"
	"agentstream/schema"
)

// everyRun lists the one run as quiet, whatever it is.
type everyRun struct{}

func (everyRun) Quiet(context.Context, time.Time) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) { yield(key, nil) }
}

// reapers runs n reapers with little patience until stop is called, which gives how many runs they ended.
func reapers(t *testing.T, l *natsjs.Log, n int) (stop func() int64) {
	t.Helper()
	var reaped atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for range n {
		r, err := reaper.New(reaper.Config{
			Log: l, Witness: l, Lister: everyRun{}, After: 300 * time.Millisecond, Grace: 100 * time.Millisecond,
			Every: 100 * time.Millisecond,
			Hooks: reaper.Hooks{Reaped: func(schema.RunKey, bool) { reaped.Add(1) }, Failed: func(err error) { t.Log(err) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() { _ = r.Run(ctx) })
	}
	stopped := func() int64 { cancel(); group.Wait(); return reaped.Load() }
	t.Cleanup(func() { stopped() })
	return stopped
}

// awaitState waits until the run is in a state.
func awaitState(t *testing.T, l *natsjs.Log, want schema.RunState, within time.Duration) {
	t.Helper()
	for until := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		head, err := l.Head(t.Context(), key, "")
		if err != nil {
			t.Fatal(err)
		}
		if head.State == want {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the run is %q after %v", head.State, within)
		}
	}
}

// speech is how long the speaking agent keeps silent in the middle of its message.
const speech = "AGENTSTREAM_TEST_SPEAKER"

// TestBeASpeaker is the process of an agent that begins a message and a child, and then says nothing until
// it is told to on its way by a command.
func TestBeASpeaker(t *testing.T) {
	if os.Getenv(speech) == "" {
		return
	}
	nc, err := natskit.Dial(os.Getenv(agentURL), "speaker")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := producers.New(producers.Config{Log: l, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	leave, err := l.Attend(t.Context(), pub)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	said := func(events ...schema.Event) {
		if _, err := pub.Append(context.Background(), events...); err != nil {
			fmt.Println("agent: ends:", err)
			os.Exit(0)
		}
	}
	said(schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running","reason":null}`)},
		schema.Event{Type: schema.TypeMessageStart, Payload: []byte(`{"message_id":"m1","role":"assistant"}`)},
		text("", "half of"),
		schema.Event{Type: schema.TypeChildSpawn, Payload: []byte(`{"child_id":"c1"}`)})
	said(text("c1", "a child"))
	fmt.Println("agent: begins")
	for {
		time.Sleep(2 * time.Second)
		said(text("", "more"))
	}
}

func startSpeaker(t *testing.T, url string) *agent {
	t.Helper()
	t.Setenv(speech, "1")
	return startProcess(t, "^TestBeASpeaker$", url)
}

// ending checks how a run was ended in the middle of a message, with a child.
func checkEnding(t *testing.T, l *natsjs.Log) {
	t.Helper()
	var fold schema.Fold
	var all []string
	for p, err := range l.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		for r := range p.Records(0) {
			fold.AddRecord(r)
			all = append(all, string(r.Type))
		}
	}
	got := strings.Join(all, " ")
	if !strings.HasSuffix(got, "commands.taken run.lifecycle block.end message.end run.lifecycle") {
		t.Fatalf("the run is %s", got)
	}
	if fold.State != schema.StateError || fold.Reason != "writer is gone" || fold.StateOf("c1") != schema.StateError {
		t.Fatalf("%s (%s), child %s", fold.State, fold.Reason, fold.StateOf("c1"))
	}
}

// An agent that was killed in the middle of a message: its run is ended once, in order, soon.
func TestReapersEndTheRunOfAKilledAgent(t *testing.T) {
	k, l := open(t)
	a := startSpeaker(t, k.Server.ClientURL())
	stop := reapers(t, l, 2)
	a.kill()
	awaitState(t, l, schema.StateError, 10*time.Second)
	time.Sleep(500 * time.Millisecond) // for a second ending
	if n := stop(); n != 1 {
		t.Fatalf("ended %d times", n)
	}
	checkEnding(t, l)
}

// An agent that is there is left alone, however long it says nothing.
func TestReapersLeaveASilentAgentAlone(t *testing.T) {
	k, l := open(t)
	startSpeaker(t, k.Server.ClientURL())
	stop := reapers(t, l, 2)
	time.Sleep(1800 * time.Millisecond) // six times what they are patient for
	if n := stop(); n != 0 {
		t.Fatalf("ended %d times", n)
	}
	awaitState(t, l, schema.StateRunning, 0)
}

// An agent that is stopped for too long loses its run, and finds out at its next word.
func TestReapersEndTheRunOfAStoppedAgent(t *testing.T) {
	k, l := open(t)
	a := startSpeaker(t, k.Server.ClientURL())
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stop := reapers(t, l, 1)
	awaitState(t, l, schema.StateError, 20*time.Second)
	wakeFenced(t, a)
	if n := stop(); n != 1 {
		t.Fatalf("ended %d times", n)
	}
	checkEnding(t, l)
}

// Asking is about one writer of one run, and says when nobody knows.
func TestAsk(t *testing.T) {
	k, l := open(t)
	pub := mustPublisher(t, l)
	leave, err := l.Attend(t.Context(), pub)
	if err != nil {
		t.Fatal(err)
	}
	nc := k.Dial(t)
	other, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key schema.RunKey, owner string) bool {
		t.Helper()
		there, err := other.Ask(t.Context(), key, owner)
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	if !ask(key, pub.WriterID()) {
		t.Error("nobody answers for a writer that attends")
	}
	if ask(key, "SOMEBODYELSE") || ask(schema.RunKey{Tenant: "acme", Run: "run_2"}, pub.WriterID()) {
		t.Error("somebody answers for another writer, or another run")
	}
	for _, owner := range []string{"", "*", ">", "a.b", "a b"} {
		if _, err := other.Ask(t.Context(), key, owner); err == nil {
			t.Errorf("owner %q was asked for", owner)
		}
	}
	leave()
	if ask(key, pub.WriterID()) {
		t.Error("who has left still answers")
	}
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	back := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { // as one does that the servers left as well
		_, err := l.Attend(context.Background(), pub)
		back <- err
	})
	if !ask(key, pub.WriterID()) {
		t.Error("who comes back behind an outage is taken for gone")
	}
	if err := <-back; err != nil {
		t.Error(err)
	}
	if seq, _, err := other.Newest(t.Context(), key); err != nil || seq != 0 {
		t.Errorf("a run that does not exist: %d, %v", seq, err)
	}
	if _, err := pub.Append(t.Context(), text("", "a")); err != nil {
		t.Fatal(err)
	}
	if seq, at, err := other.Newest(t.Context(), key); err != nil || seq != 1 || time.Since(at).Abs() > time.Minute {
		t.Errorf("newest is %d, stored at %v: %v", seq, at, err)
	}
	k.Server.Shutdown()
	if there, err := other.Ask(t.Context(), key, pub.WriterID()); err == nil {
		t.Errorf("without a broker the answer is %v", there)
	}
}
