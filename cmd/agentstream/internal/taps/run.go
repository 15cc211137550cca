package taps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/edge"
	lognats "agentstream/fanout/natsjs"
	"agentstream/internal/spans"
	"agentstream/tap"
	"agentstream/tap/natsjs"
	"agentstream/tap/otlp"
	"agentstream/tap/sink"
)

// Cmd holds the commands on taps.
type Cmd struct {
	Run         RunCmd     `cmd:"" default:"withargs" help:"Deliver all events to a sink, each at least once and those of a run in order. The command's own name does the same."`
	List        ListCmd    `cmd:"" help:"List taps, and how far each is behind."`
	Remove      RemoveCmd  `cmd:"" help:"Remove a tap: its place, its consumers and its dead letters."`
	DeadLetters LettersCmd `cmd:"" name:"deadletters" help:"Show, retry and drop what a sink has refused."`
}

// SinkFlags say where events go.
type SinkFlags struct {
	To             []string      `help:"Where events go: stdout:, file:PATH, webhook+https://HOST/PATH, postgres://USER@HOST/DATABASE, nats://HOST/SUBJECT, kafka://HOST:PORT/TOPIC, clickhouse+http://HOST/DATABASE, otlp+http://HOST:PORT, otlp+grpc://HOST:PORT. May be given more than once. A variable AGENTSTREAM_TAP_TO keeps passwords out of the process list." env:"AGENTSTREAM_TAP_TO" sep:"none" placeholder:"URL"`
	WebhookSecret  string        `help:"Secret that signs webhooks, whsec_ and base64. While it is replaced, two lines: the new one, then the old one. The environment, or its _FILE form, keeps it out of the process list." env:"AGENTSTREAM_TAP_WEBHOOK_SECRET" placeholder:"SECRET"`
	WebhookTimeout time.Duration `help:"How long a receiver may take for its answer." default:"15s" env:"AGENTSTREAM_TAP_WEBHOOK_TIMEOUT"`
	OTLPHeaders    string        `name:"otlp-headers" help:"Headers of requests to a collector, one a line: 'Authorization: Bearer …'. The environment, or its _FILE form, keeps them out of the process list." env:"AGENTSTREAM_TAP_OTLP_HEADERS" placeholder:"HEADERS"`
	Contents       bool          `help:"Send also what people, models and tools have said to a collector. Without it, spans have names, times and numbers alone." env:"AGENTSTREAM_TAP_CONTENTS"`
	AllowPrivate   bool          `help:"Let webhooks go to this machine and to private networks." env:"AGENTSTREAM_TAP_ALLOW_PRIVATE"`

	cli.KeyFlags
	cli.Streams `kong:"-"`
}

// open opens the sinks. history is for those that are about runs.
func (f *SinkFlags) open(ctx context.Context, history otlp.History) (tap.Receiver, error) {
	keys, err := f.OpenKeys()
	if err != nil {
		return nil, err
	}
	if keys != nil && history != nil {
		history = openedHistory{history, keys}
	}
	o := sink.Options{Stdout: f.Stdout(), Private: f.AllowPrivate, Timeout: f.WebhookTimeout,
		OTLP: sink.OTLP{Contents: f.Contents, History: history}}
	if f.OTLPHeaders != "" {
		o.OTLP.Headers = cli.NewSecret(f.OTLPHeaders, "AGENTSTREAM_TAP_OTLP_HEADERS").Lines
	}
	if f.WebhookSecret != "" {
		o.Secrets = cli.NewSecret(f.WebhookSecret, "AGENTSTREAM_TAP_WEBHOOK_SECRET").Lines
	}
	out, err := sink.Open(ctx, f.To, o)
	if err == nil && keys != nil {
		out = openedSink{out, keys}
	}
	return out, err
}

// RunCmd is one member of a tap.
type RunCmd struct {
	Name      string   `help:"Name of the tap. Processes of one name share the work, and go on where others of it have stopped." required:"" env:"AGENTSTREAM_TAP_NAME" placeholder:"NAME"`
	Tenant    string   `help:"Deliver the events of this tenant; without it, of all." env:"AGENTSTREAM_TAP_TENANT" placeholder:"TENANT"`
	Types     []string `help:"Deliver events of these types: message.end, run.*; without it, of all." env:"AGENTSTREAM_TAP_TYPES" placeholder:"TYPE"`
	From      string   `help:"Where a tap that is new begins: all (what is kept), new, or a time (RFC 3339, or 24h ago)." default:"all" env:"AGENTSTREAM_TAP_FROM" placeholder:"all|new|TIME"`
	Server    string   `help:"Read from this server over HTTP, as whom the token names, and not from NATS. One process; the server keeps the place." env:"AGENTSTREAM_TAP_SERVER" placeholder:"URL"`
	Token     string   `help:"Bearer token for --server, with the scope read. A file or the environment keeps it out of the process list." env:"AGENTSTREAM_TOKEN" placeholder:"TOKEN"`
	TokenFile string   `help:"File that holds the bearer token; wins over --token." type:"path" placeholder:"FILE"`
	CA        string   `name:"ca" help:"File with the authorities of the server's certificate." env:"AGENTSTREAM_CA" type:"path" placeholder:"FILE"`
	SinkFlags
	cli.NATSFlags
	cli.PostgresFlags
	archive.BlobFlags
	Data        string        `help:"Folder of a dev server, whose archive is read instead of PostgreSQL." type:"path" placeholder:"FOLDER"`
	Linger      time.Duration `help:"Least time between two batches of a partition while they are small. 0: none." default:"100ms" env:"AGENTSTREAM_TAP_LINGER"`
	Batch       int           `help:"Events of one batch, at most." default:"8000" env:"AGENTSTREAM_TAP_BATCH"`
	AdminListen string        `help:"Address for /metrics, /debug/pprof and health; off switches it off. Never expose it." default:"off" env:"AGENTSTREAM_TAP_ADMIN_LISTEN" placeholder:"HOST:PORT"`
	process.AdminFlags
	process.CollectorFlags
	OTLPSpanHeaders string `name:"otlp-span-headers" help:"Headers of requests to the collector of --otlp, one a line; --otlp-headers are those of --to. The environment, or its _FILE form, keeps them out of the process list." env:"AGENTSTREAM_OTLP_HEADERS" placeholder:"HEADERS"`
}

// spec returns what the flags ask for.
func (c *RunCmd) spec(now time.Time) (tap.Spec, error) {
	s := tap.Spec{Name: c.Name, Tenant: c.Tenant, Types: c.Types}
	slices.Sort(s.Types)
	for _, address := range c.To {
		s.To = append(s.To, sink.Name(address))
	}
	switch c.From {
	case "all", "":
	case "new":
		s.From = now
	default:
		from, err := cli.ParseSince("--from", c.From, now)
		if err != nil {
			return s, fmt.Errorf("%w; or all, or new", err)
		}
		s.From = from
	}
	return s, s.Validate()
}

// Run delivers until ctx ends.
func (c *RunCmd) Run(ctx context.Context, log *slog.Logger) error {
	spec, err := c.spec(time.Now().UTC())
	if err != nil {
		return err
	}
	if len(spec.Types) > 0 && c.hasWholeRuns() {
		return errors.New("--types: spans are made of whole runs, so a tap to a collector has all types")
	}
	if c.Server != "" {
		return c.runOver(ctx, spec, log)
	}
	m := process.NewMetrics()
	tracer, sending, err := c.openSpans(m, log)
	if err != nil {
		return err
	}
	nc, err := c.Dial("tap", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	linger := c.Linger
	if linger <= 0 {
		linger = -1 // zero means the default there
	}
	cfg := tap.Config{Spec: spec, Linger: linger, Batch: c.Batch, Logger: log, Full: m.TapFull(spec.Name),
		Hooks: process.WithSpans(m.TapHooks(spec.Name), tracer, batchSpan)}
	if c.Postgres != "" || c.Data != "" {
		all, done, err := c.history(ctx, log)
		if err != nil {
			return err
		}
		defer done()
		cfg.Archive = all
	}
	cfg.Sink, err = c.openBeside(ctx, nc, cfg.Archive)
	if err != nil {
		return err
	}
	defer func() { _ = cfg.Sink.Close() }() // what was written is written
	member, err := natsjs.Join(ctx, nc, cfg)
	if err != nil {
		return hintMigrate(err)
	}
	stages := [][]process.Part{{{Name: "tap", Run: member.Run}}}
	operators, err := process.OpenOperators(ctx, c.AdminListen, c.AdminFlags, m, log)
	if err != nil {
		return err
	}
	defer operators.Close()
	a := &process.Admin{Metrics: m, Log: log, Checks: []edge.Check{
		{Name: "sink", Run: func(context.Context) error { return member.Storing() }}}}
	stages = append(stages, append(operators.Parts(a), sending...))
	log.Info("tap: delivering", "tap", spec.Name, "to", strings.Join(spec.To, ", "))
	return process.RunStages(ctx, stages...)
}

// batchSpan is the name of the span of a batch.
const batchSpan = "deliver"

// openSpans returns what makes spans of batches, and the part that sends them.
func (c *RunCmd) openSpans(m *process.Metrics, log *slog.Logger) (*spans.Tracer, []process.Part, error) {
	return c.CollectorFlags.OpenWith(c.OTLPSpanHeaders, "tap", m, log)
}

// openBeside opens the sinks of a tap of a log.
func (f *SinkFlags) openBeside(ctx context.Context, nc *nats.Conn, archive tap.Backlog) (tap.Receiver, error) {
	if !f.hasWholeRuns() {
		return f.open(ctx, nil)
	}
	log, err := lognats.Open(ctx, nc)
	if err != nil {
		return nil, hintMigrate(err)
	}
	return f.open(ctx, &runHistory{log: log, archive: archive})
}

// history opens the archive.
func (c *RunCmd) history(ctx context.Context, log *slog.Logger) (tap.Backlog, func(), error) {
	objects, err := c.Beside(c.Data).OpenBlobs()
	if err != nil {
		return nil, nil, err
	}
	store, done, err := archive.OpenStore(ctx, c.Postgres, c.Data, log)
	if err != nil {
		return nil, nil, err
	}
	all, err := store.History(objects)
	if err != nil {
		done()
		return nil, nil, err
	}
	return all, done, nil
}
