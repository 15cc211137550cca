package natsjs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// agentURL tells the test binary to be an agent on that server.
const agentURL = "AGENTSTREAM_TEST_AGENT"

// TestBeAnAgent is the agent's process: it obeys every command with one effect, stored with what takes the
// command, and says other things in between. It says on its output what ends it.
func TestBeAnAgent(t *testing.T) {
	url := os.Getenv(agentURL)
	if url == "" {
		return
	}
	nc, err := natskit.Dial(url, "agent")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("agent: begins")
	fmt.Println("agent: ends:", obey(context.Background(), l))
}

// obey runs an agent until something ends it.
func obey(ctx context.Context, l *natsjs.Log) error {
	pub, err := producers.New(producers.Config{Log: l, Key: key, PackEvents: 4})
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close(context.Background()) }() // Next has said why
	leave, err := l.Attend(ctx, pub)
	if err != nil {
		return err
	}
	defer leave()
	c, err := command.New(command.Config{Publisher: pub, Waker: l, Poll: time.Second})
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		cmd, err := c.Next(ctx)
		if err != nil {
			return err
		}
		for range rand.IntN(7) {
			if _, err := pub.Publish(ctx, text("", "noise")); err != nil {
				return err
			}
		}
		mark := "first"
		if cmd.Redelivered {
			mark = "again"
		}
		if err := cmd.Commit(ctx, schema.Event{Type: "custom.effect",
			Payload: fmt.Appendf(nil, `{"of":%d,"mark":%q}`, cmd.Event.Seq, mark)}); err != nil {
			return err
		}
	}
}

// agent is an agent in a process of its own.
type agent struct {
	cmd   *exec.Cmd
	begun chan struct{}
	ended chan struct{}
	last  atomic.Value // its last line
}

func startAgent(t *testing.T, url string) *agent {
	t.Helper()
	return startProcess(t, "^TestBeAnAgent$", url)
}

func startProcess(t *testing.T, test, url string) *agent {
	t.Helper()
	a := &agent{cmd: exec.Command(os.Args[0], "-test.run="+test), begun: make(chan struct{}), ended: make(chan struct{})}
	a.cmd.Env = append(os.Environ(), agentURL+"="+url)
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(a.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if line, ok := strings.CutPrefix(lines.Text(), "agent: "); ok {
				if a.last.Store(line); line == "begins" {
					close(a.begun)
				}
			}
		}
		_ = a.cmd.Wait() // killed, mostly
	}()
	t.Cleanup(a.kill)
	select {
	case <-a.begun:
	case <-a.ended:
		t.Fatalf("the agent did not begin: %v", a.last.Load())
	}
	return a
}

// wakeFenced lets an agent go on that was stopped while its run went to another: it is told, and ends.
func wakeFenced(t *testing.T, a *agent) {
	t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the stopped agent goes on")
	}
	if last := fmt.Sprint(a.last.Load()); !strings.Contains(last, producers.ErrFenced.Error()) {
		t.Fatalf("the stopped agent: %s", last)
	}
}

func (a *agent) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.ended
}

// speaker appends commands all the time, as HTTP does, until stop is called, which gives their number.
func speaker(t *testing.T, l *natsjs.Log) (stop func() int) {
	t.Helper()
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	n := 0
	group.Go(func() {
		for ctx.Err() == nil {
			e := schema.Event{Type: schema.TypeCommandMessage, Actor: "user", Payload: fmt.Appendf(nil, `{"content":"%d"}`, n)}
			if _, err := a.Append(context.Background(), key, []schema.Event{e}, producers.AppendOptions{}); err != nil {
				t.Error(err)
				return
			}
			n++
			select {
			case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() int { cancel(); group.Wait(); return n }
}

// effects reads the run: the commands, and how often each has had its effect. It checks that effects are in
// the order of the commands.
func effects(t *testing.T, l *natsjs.Log) (commands, done, again int) {
	t.Helper()
	ids := make(map[schema.Seq]string)
	seen, last := make(map[string]int), schema.Seq(0)
	for p, err := range l.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		for r := range p.Records(0) {
			e, err := r.Event()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case strings.HasPrefix(e.Type, "command."):
				ids[e.Seq] = e.ID
			case e.Type == "custom.effect":
				var of schema.Seq
				if _, err := fmt.Sscanf(string(e.Payload), `{"of":%d`, &of); err != nil || ids[of] != e.Cause {
					t.Fatalf("seq %d: effect of %d is caused by %s: %v", e.Seq, of, e.Cause, err)
				}
				if seen[e.Cause]++; seen[e.Cause] > 1 {
					t.Fatalf("seq %d: command %d has its effect twice", e.Seq, of)
				}
				if of <= last {
					t.Fatalf("seq %d: effect of %d behind that of %d", e.Seq, of, last)
				}
				last = of
				if strings.Contains(string(e.Payload), "again") {
					again++
				}
			}
		}
	}
	return len(ids), len(seen), again
}

// awaitEffects waits until every command has had its effect.
func awaitEffects(t *testing.T, l *natsjs.Log, want int) (again int) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		commands, done, again := effects(t, l)
		if commands != want {
			t.Fatalf("%d commands in the log, %d were given", commands, want)
		}
		if done == want {
			return again
		}
		if time.Now().After(until) {
			t.Fatalf("%d of %d commands have had their effect", done, want)
		}
	}
}

// Agents are killed at random moments, and now and then two are alive at once, while commands are given all
// the time: each has its effect once.
func TestCommandsUnderKills(t *testing.T) {
	k, l := open(t)
	if _, err := mustPublisher(t, l).Append(t.Context(), text("", "begins")); err != nil {
		t.Fatal(err)
	}
	stop := speaker(t, l)
	const kills = 40
	fenced := 0
	a := startAgent(t, k.Server.ClientURL())
	for i := range kills {
		time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
		if i%4 == 3 { // the next one begins beside it
			b := startAgent(t, k.Server.ClientURL())
			// The lane is the last one's to claim it, which may be the former agent's: it was started a
			// moment ago. One of the two is told.
			select {
			case <-a.ended:
			case <-b.ended:
				a, b = b, a
			case <-time.After(20 * time.Second):
				t.Fatal("two agents go on")
			}
			if !strings.Contains(fmt.Sprint(a.last.Load()), producers.ErrFenced.Error()) {
				t.Fatalf("the overtaken agent: %v", a.last.Load())
			}
			fenced++
			a = b
			continue
		}
		a.kill()
		a = startAgent(t, k.Server.ClientURL())
	}
	n := stop()
	again := awaitEffects(t, l, n)
	t.Logf("%d kills, %d overtaken, %d commands, %d of them handed over again", kills-fenced, fenced, n, again)
	if again == 0 || fenced == 0 {
		t.Error("no command was in an agent's hands when it ended: nothing was shown")
	}
}

func mustPublisher(t *testing.T, l *natsjs.Log) *producers.Publisher {
	t.Helper()
	pub, err := producers.New(producers.Config{Log: l, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pub.Close(context.Background()) })
	return pub
}

// An agent that was asleep while another took over is fenced when it wakes, and does nothing twice.
func TestCommandsOfAStoppedAgent(t *testing.T) {
	k, l := open(t)
	stop := speaker(t, l)
	a := startAgent(t, k.Server.ClientURL())
	time.Sleep(200 * time.Millisecond)
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- obey(ctx, l) }()
	time.Sleep(300 * time.Millisecond)
	wakeFenced(t, a)
	awaitEffects(t, l, stop())
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// The broker goes away and comes back on the same data: the agent waits and goes on.
func TestCommandsOutliveTheBroker(t *testing.T) {
	dir, port := t.TempDir(), testkit.FreePort(t)
	serve := func() (stop func()) {
		s, err := natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: "127.0.0.1", Port: port})
		if err != nil {
			t.Fatal(err)
		}
		return func() { s.Shutdown(); s.WaitForShutdown() }
	}
	stopServer := serve()
	defer func() { stopServer() }()
	l := openAt(t, fmt.Sprintf("nats://127.0.0.1:%d", port))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- obey(ctx, l) }()
	stop := speaker(t, l)
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		stopServer()
		time.Sleep(100 * time.Millisecond)
		stopServer = serve()
	}
	time.Sleep(200 * time.Millisecond)
	awaitEffects(t, l, stop())
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// openAt declares a log on a server and opens it on a connection of its own.
func openAt(t *testing.T, url string) *natsjs.Log {
	t.Helper()
	nc, err := natskit.Dial(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// BenchmarkCommandsBegin is what an agent that comes back to a run of 100,000 events reads before its first
// command.
func BenchmarkCommandsBegin(b *testing.B) {
	for _, per := range []int{1, 20, 128} {
		b.Run(fmt.Sprintf("packs of %d", per), func(b *testing.B) {
			k := testkit.NATS(b)
			l, err := natsjs.Open(b.Context(), k.Conn)
			if err != nil {
				b.Fatal(err)
			}
			long := schema.RunKey{Tenant: "acme", Run: "run_long"}
			pub, err := producers.New(producers.Config{Log: l, Key: long, PackEvents: per})
			if err != nil {
				b.Fatal(err)
			}
			for range 100_000 {
				if _, err := pub.Publish(b.Context(), text("", "some words of an answer")); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := pub.Append(b.Context(), schema.Event{Type: schema.TypeCommandMessage,
				Payload: []byte(`{"content":"go on"}`)}); err != nil {
				b.Fatal(err)
			}
			if err := pub.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				pub, err := producers.New(producers.Config{Log: l, Key: long})
				if err != nil {
					b.Fatal(err)
				}
				c, err := command.New(command.Config{Publisher: pub, Waker: l})
				if err != nil {
					b.Fatal(err)
				}
				if cmd, err := c.Next(b.Context()); err != nil || cmd.Text() != "go on" {
					b.Fatal(cmd, err)
				}
				c.Close()
				_ = pub.Close(b.Context())
			}
		})
	}
}

// BenchmarkCommandHandover is one command from its append, beside the agent, to the agent, and what takes it.
func BenchmarkCommandHandover(b *testing.B) {
	k := testkit.NATS(b)
	l, err := natsjs.Open(b.Context(), k.Conn)
	if err != nil {
		b.Fatal(err)
	}
	pub, err := producers.New(producers.Config{Log: l, Key: key})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pub.Close(context.Background()) }()
	c, err := command.New(command.Config{Publisher: pub, Waker: l})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		b.Fatal(err)
	}
	var heard, taken time.Duration
	for b.Loop() {
		if _, err := a.Append(b.Context(), key,
			[]schema.Event{{Type: schema.TypeCommandMessage, Payload: []byte(`{"content":"x"}`)}},
			producers.AppendOptions{}); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		cmd, err := c.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		heard += time.Since(began)
		if err := cmd.Commit(b.Context(), text("", "done")); err != nil {
			b.Fatal(err)
		}
		taken += time.Since(began)
	}
	b.ReportMetric(float64(heard.Microseconds())/float64(b.N), "µs-to-agent/op")
	b.ReportMetric(float64(taken.Microseconds())/float64(b.N), "µs-to-taken/op")
}
