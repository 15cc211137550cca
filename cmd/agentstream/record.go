package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/adapters/proxy"
	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/cmd/agentstream/internal/record"
	"agentstream/schema"
)

// RecordCmd runs a command and records all model calls of it, and of the processes that it starts, into one run.
type RecordCmd struct {
	RunID    string            `name:"run" help:"Run that the calls go into; default: a new one." placeholder:"ID"`
	Title    string            `help:"What the run is called." placeholder:"TEXT"`
	Tag      []string          `help:"A tag of the run; may be repeated." placeholder:"TAG"`
	Metadata map[string]string `help:"A pair of the run's metadata; may be repeated." placeholder:"NAME=VALUE"`
	cli.ServerFlags
	Data      string        `help:"Folder for what is recorded when no server is running; it is that of agentstream dev. Default: ./data, or the server at --server." type:"path" env:"AGENTSTREAM_DATA" placeholder:"FOLDER"`
	BaseURL   []string      `name:"base-url" help:"Variable of the environment that holds the base URL of an API, beside those of the known libraries." placeholder:"NAME[=URL]"`
	Requests  string        `help:"What is kept of requests: all (the user's last message, and results of tools) or none." enum:"all,none" default:"all" env:"AGENTSTREAM_PROXY_REQUESTS"`
	RetryHold time.Duration `help:"How long at least a failed call that clients repeat by themselves waits for its repeat." default:"5s" env:"AGENTSTREAM_PROXY_RETRY_HOLD"`
	Command   []string      `arg:"" passthrough:"" name:"command" help:"Command that is run, with its arguments: python my_agent.py"`

	seen  sync.Mutex
	shown http.Header // what calls have shown to authenticate
	asked atomic.Int64
}

// Run runs the command. The error is a cli.ExitStatus once the command was to be started.
//
//	command ─▶ proxy ─▶ providers      the parts end from the left: the command, what still goes
//	             │                     through the proxy, recorders, the end of the run, and the
//	             ▼                     server, if it was started here
//	           server
func (c *RecordCmd) Run(ctx context.Context, app *CLI, s *settings) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return errors.New("no command is given: agentstream record -- python my_agent.py")
	}
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		fmt.Fprintln(os.Stderr, "agentstream:", err)
		return cli.ExitStatus(record.StartStatus(err))
	}
	if app.Level == "info" { // the terminal is the command's; what the run lacks is printed all the same
		app.Level = "error"
	}
	signals, stop := record.Signals()
	defer stop()
	ctx = context.WithoutCancel(ctx) // the command decides when it ends
	log := app.logger()
	c.RunID = cmp.Or(c.RunID, schema.NewIDs().Run(time.Now()))
	if err := schema.ValidRunID(c.RunID); err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	about, err := c.describe()
	if err != nil {
		return err
	}
	server, err := c.findServer(ctx, s, log)
	if err != nil {
		return err
	}
	defer func() { server.stop() }()
	client, err := cli.NewClient(c.ServerFlags, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	run := &recording{client: client, run: client.Run(c.RunID), about: about}
	return c.record(ctx, run, signals, func() (own bool) {
		server = c.replaceServer(ctx, s, server, log)
		return server.own
	}, log)
}

// describe returns the event of the run's title, tags and metadata; none where nothing is said.
func (c *RecordCmd) describe() ([]schema.Event, error) {
	d := schema.Description{Title: c.Title, Tags: c.Tag, Metadata: c.Metadata}
	if d.IsZero() {
		return nil, nil
	}
	e, err := d.Event()
	if err != nil {
		return nil, fmt.Errorf("--title, --tag or --metadata: %w", err)
	}
	return []schema.Event{e}, nil
}

// record runs the command between the beginning and the end of its run. check makes sure that there is a server, and
// reports whether it ends with this process.
func (c *RecordCmd) record(ctx context.Context, run *recording, signals <-chan os.Signal, check func() bool,
	log *slog.Logger) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	environ, ups, err := record.Redirect(os.Environ(), "http://"+ln.Addr().String()+"/run/"+c.RunID, c.BaseURL)
	if err != nil {
		_ = ln.Close()
		return err
	}
	serve, err := c.proxy(ctx, ln, ups, run.client, log)
	if err != nil {
		_ = ln.Close()
		return err
	}
	if err := run.begin(ctx); err != nil {
		_ = serve()
		return err
	}
	fmt.Fprintf(os.Stderr, "agentstream: recording run %s: %s/console/#/run/%s\n", c.RunID,
		strings.TrimSuffix(c.Server, "/"), c.RunID)
	status, state, reason := c.command(environ, signals)
	own := check()
	if err := serve(); err != nil {
		log.Error("record: proxy", "err", err)
	}
	if err := run.finish(ctx, state, reason); err != nil {
		fmt.Fprintf(os.Stderr, "agentstream: run %s was recorded, but not that it is %s: %v\n", c.RunID, state, err)
	}
	if own {
		fmt.Fprintf(os.Stderr, "agentstream: run %s is %s; to look at it: agentstream dev --data %s\n", c.RunID, state,
			c.Data)
	}
	if status != 0 {
		return cli.ExitStatus(status)
	}
	return nil
}

// command runs the command and returns how it and its run end.
func (c *RecordCmd) command(environ []string, signals <-chan os.Signal) (status int, state schema.RunState,
	reason string) {
	child, err := record.Start(c.Command, environ, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentstream:", err)
		return record.StartStatus(err), schema.StateError, err.Error()
	}
	end := child.Wait(signals)
	interrupted := end.Interrupted != "" && (end.Status != 0 || c.asked.Load() < end.At.UnixNano())
	switch {
	case interrupted:
		return end.Status, schema.StateAborted, "interrupted by " + end.Interrupted
	case end.Signal == "SIGINT":
		return end.Status, schema.StateAborted, "interrupted by " + end.Signal
	case end.Status == 0:
		return 0, schema.StateDone, ""
	}
	c.seen.Lock()
	defer c.seen.Unlock()
	secrets := record.Secrets(os.Environ(), c.shown)
	return end.Status, schema.StateError, string(secrets.Bytes([]byte(end.Reason())))
}

// How long the parts have at the end: calls that a process makes which the command has left behind, and events that are
// not stored yet.
const (
	lastCalls  = time.Second
	lastEvents = 10 * time.Second
)

// proxy starts the proxy, and returns what ends it once all that it has recorded is stored.
func (c *RecordCmd) proxy(ctx context.Context, ln net.Listener, ups []proxy.Upstream, client *agentstream.Client,
	log *slog.Logger) (end func() error, err error) {
	publisher := client.Publisher()
	p, err := proxy.New(proxy.Config{
		Upstreams: ups, Tenants: []string{"default"}, Requests: proxy.Requests(c.Requests), RetryHold: c.RetryHold,
		Grace:  lastEvents,
		Logger: log, Hooks: proxy.Hooks{Lost: printLoss},
		Open: func(_ context.Context, key schema.RunKey) (proxy.Sink, error) {
			return &edgeSink{client: client, publisher: publisher, run: key.Run}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: process.Guard(c.watch(p), ln.Addr()), ReadHeaderTimeout: 30 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- process.RunStages(ctx,
			[]process.Part{{Name: "proxy server", Run: func(ctx context.Context) error {
				return process.ServeHTTP(ctx, srv, ln, process.Ending{Drain: lastCalls})
			}}},
			[]process.Part{{Name: "recorders", Run: p.Run}})
	}()
	return func() error {
		cancel()
		return <-done
	}, nil
}

// printLoss prints that the run is incomplete.
func printLoss(l proxy.Loss) {
	where := "and the run has no loss event"
	if l.Recorded {
		where = "and the run has a loss event"
	}
	fmt.Fprintf(os.Stderr, "agentstream: the recording of run %s is incomplete (%s), %s\n", l.Key.Run, l.Reason, where)
}

// maxShown bounds the headers that are remembered.
const maxShown = 64

// watch remembers when the command called a model, and by what its calls authenticate.
func (c *RecordCmd) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked.Store(time.Now().UnixNano())
		c.show(r.Header)
		next.ServeHTTP(w, r)
	})
}

func (c *RecordCmd) show(h http.Header) {
	c.seen.Lock()
	defer c.seen.Unlock()
	if c.shown == nil {
		c.shown = http.Header{}
	}
	for name, values := range h {
		for _, v := range values {
			if old := c.shown[name]; len(old) == 0 || len(old) < maxShown && old[len(old)-1] != v {
				c.shown[name] = append(old, v)
			}
		}
	}
}

// recording is the run of a command.
type recording struct {
	client *agentstream.Client
	run    *agentstream.Run
	about  []schema.Event // title, tags and metadata
}

// lifecycleEvent returns a run.lifecycle.
func lifecycleEvent(state schema.RunState, reason string) schema.Event {
	p := map[string]any{"state": state, "reason": nil}
	if reason != "" {
		p["reason"] = reason
	}
	payload, _ := json.Marshal(p) // strings always encode
	return schema.Event{Type: schema.TypeRunLifecycle, Payload: payload}
}

// begin begins the run. One that goes on, goes on.
func (r *recording) begin(ctx context.Context) error {
	at, err := r.run.Info(ctx)
	if err != nil && !errors.Is(err, agentstream.ErrNotFound) {
		return err
	}
	first := r.about
	if at.State != schema.StateRunning {
		first = append([]schema.Event{lifecycleEvent(schema.StateRunning, "")}, first...)
	}
	if len(first) == 0 {
		return nil
	}
	_, err = r.run.Append(ctx, rand.Text(), first...)
	return err
}

// finish ends the run. One that its command has ended otherwise begins once more for it.
func (r *recording) finish(ctx context.Context, state schema.RunState, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, lastEvents)
	defer cancel()
	last := lifecycleEvent(state, reason)
	_, err := r.run.Append(ctx, rand.Text(), last)
	if !errors.Is(err, agentstream.ErrEnded) {
		return err
	}
	at, err := r.run.Info(ctx)
	if err != nil || at.State == state {
		return err
	}
	_, err = r.run.Append(ctx, rand.Text(), lifecycleEvent(schema.StateRunning, ""), last)
	return err
}
