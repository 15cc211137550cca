package persistertest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/cputime"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// The load of BenchmarkRate: that of 500 busy agents whose every token is published alone.
const (
	rateRuns       = 500
	ratePartitions = 8
	rateEvents     = 10_000 // packs of one event each, a second
	rateFor        = 5 * time.Second
)

// rateChild, in the environment, makes the test binary the log's process: a folder for the store.
const rateChild = "PERSISTERTEST_RATE_LOG"

// BenchmarkRate writes 10,000 packs of one event each a second, of 500 runs in 8 partitions, from a
// log in another process into each store, and prints the CPU time that an event costs: us/event in
// this process (persister, its NATS client and, for SQLite, the database), log-us/event in the log's
// (a run without a persister taken off: what reading costs the server), and
// server-us/event in PostgreSQL's. rows/commit is how many events share a transaction, and behind-ms
// how long after the last publish the last row was stored.
func BenchmarkRate(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		benchRate(b, openSQLite(b, filepath.Join(b.TempDir(), "s.db")), func() time.Duration { return 0 })
	})
	b.Run("postgres", func(b *testing.B) {
		dsn := testkit.Postgres(b)
		benchRate(b, open(b, dsn), postmasterCPU(b, dsn))
	})
}

func benchRate(b *testing.B, store persister.Store, serverCPU func() time.Duration) {
	for b.Loop() {
		b.StopTimer()
		bare := startRateLog(b)
		idle := bare.publish(b)
		bare.stop(b)
		log := startRateLog(b)
		var commits, rows int
		counted := make(chan persister.Stored, 1<<16)
		p, stop := ratePersist(b, log.url, persister.Config{Store: store,
			Hooks: persister.Hooks{Stored: func(_ string, s persister.Stored) { counted <- s }}})
		self, server := cputime.Process(), serverCPU()
		b.StartTimer()
		busy := log.publish(b)
		last := time.Now()
		total := int(rateEvents * rateFor.Seconds())
		for deadline := time.After(2 * time.Minute); rows < total; commits++ {
			select {
			case s := <-counted:
				rows += s.Inserted
			case <-deadline:
				b.Fatalf("%d of %d rows: %+v", rows, total, p.Status())
			}
		}
		behind := time.Since(last)
		b.StopTimer()
		per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(total) }
		b.ReportMetric(per(cputime.Process()-self), "us/event")
		b.ReportMetric(per(serverCPU()-server), "server-us/event")
		b.ReportMetric(per(busy-idle), "log-us/event")
		b.ReportMetric(float64(rows)/float64(commits), "rows/commit")
		b.ReportMetric(float64(behind.Milliseconds()), "behind-ms")
		b.ReportMetric(0, "ns/op")
		stop()
		log.stop(b)
		b.StartTimer()
	}
}

func ratePersist(b *testing.B, url string, cfg persister.Config) (p *persister.Persister, stop func()) {
	b.Helper()
	nc, err := natskit.Dial(url, b.Name())
	if err != nil {
		b.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	if cfg.Queues, err = natsjs.Queues(b.Context(), js, natsjs.Config{}); err != nil {
		b.Fatal(err)
	}
	if p, err = persister.New(cfg); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return p, func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		nc.Close()
	}
}

// rateLog is the log's process: an embedded server that publishes on request.
type rateLog struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	url string
}

func startRateLog(b testing.TB) *rateLog {
	b.Helper()
	l := &rateLog{cmd: exec.Command(os.Args[0])}
	l.cmd.Env = append(os.Environ(), rateChild+"="+b.TempDir())
	l.cmd.Stderr = os.Stderr
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := l.cmd.StdoutPipe()
	if err == nil {
		l.in, err = l.cmd.StdinPipe()
	}
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	l.out = bufio.NewScanner(out)
	l.url = l.line(b)
	return l
}

func (l *rateLog) line(b testing.TB) string {
	b.Helper()
	if !l.out.Scan() {
		b.Fatal("the log's process ended: ", l.out.Err())
	}
	return l.out.Text()
}

// publish makes the log publish for rateFor, and returns the CPU time that it took there.
func (l *rateLog) publish(b *testing.B) time.Duration {
	b.Helper()
	if _, err := fmt.Fprintln(l.in, "publish"); err != nil {
		b.Fatal(err)
	}
	before, err := time.ParseDuration(l.line(b))
	if err != nil {
		b.Fatal(err)
	}
	after, err := time.ParseDuration(l.line(b))
	if err != nil {
		b.Fatal(err)
	}
	return after - before
}

func (l *rateLog) stop(b testing.TB) {
	b.Helper()
	if err := errors.Join(l.in.Close(), l.cmd.Wait()); err != nil {
		b.Fatal(err)
	}
}

// serveRateLog is the main function of the log's process.
func serveRateLog(dir string) error {
	s, err := natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: "127.0.0.1", Port: -1})
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := natskit.Dial("", "rate", nats.InProcessServer(s))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := natskit.Declare(context.Background(), js, natskit.Layout{Partitions: ratePartitions}); err != nil {
		return err
	}
	var packs []*nats.Msg
	fmt.Println(s.ClientURL())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		size, preload := strings.CutPrefix(in.Text(), "load ")
		switch {
		case preload:
			err = loadLog(js, size)
		case in.Text() == "cpu":
			fmt.Println(cputime.Process())
		default:
			if packs == nil {
				packs = ratePacks()
			}
			err = publishRate(nc, packs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ratePacks makes what is published, so that making it costs nothing later.
func ratePacks() []*nats.Msg {
	writers := make([]*persistertest.Writer, rateRuns)
	for i := range writers {
		writers[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, "20260228")
	}
	event := persistertest.Event(schema.TypeTextDelta,
		fmt.Sprintf(`{"text":%q}`, strings.Repeat("The quick brown fox ", 9)))
	msgs := make([]*nats.Msg, int(rateEvents*rateFor.Seconds()))
	for i := range msgs {
		p := writers[i%len(writers)].Pack("", event)
		msgs[i] = &nats.Msg{Subject: schema.Subject(p.Key, "", ratePartitions), Header: p.Headers(), Data: p.Body}
	}
	return msgs
}

func publishRate(nc *nats.Conn, msgs []*nats.Msg) error {
	fmt.Println(cputime.Process())
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; n < len(msgs); {
		<-tick.C
		for due := min(len(msgs), int(time.Since(begin).Seconds()*rateEvents)); n < due; n++ {
			if err := nc.PublishMsg(msgs[n]); err != nil {
				return err
			}
		}
		if err := nc.Flush(); err != nil {
			return err
		}
	}
	fmt.Println(cputime.Process())
	return nil
}

// postmasterCPU returns a function that sums the CPU time of a PostgreSQL's processes, those that have
// ended too.
func postmasterCPU(b *testing.B, dsn string) func() time.Duration {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	var backend int
	if err := conn.QueryRow(b.Context(), `select pg_backend_pid()`).Scan(&backend); err != nil {
		b.Fatal(err)
	}
	parent, _ := procStat(backend)
	return func() time.Duration {
		_, sum := procStat(parent)
		entries, err := os.ReadDir("/proc")
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				if of, cpu := procStat(pid); of == parent {
					sum += cpu
				}
			}
		}
		return sum
	}
}

// procStat reads a process' parent and CPU time, that of its waited-for children included; zeros when
// it is gone (proc(5)).
func procStat(pid int) (parent int, cpu time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime in ticks of 10 ms
		n, _ := strconv.Atoi(f)
		cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return parent, cpu
}
