package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"agentstream/adapters/model"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/edge"
	"agentstream/persister/postgres"
	pubjs "agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/protocols/nimi/answer"
	"agentstream/schema"
)

// WorkerCmd answers sessions that name one of its models.
type WorkerCmd struct {
	cli.NATSFlags
	cli.PostgresFlags
	ModelFlags
	Tenant      []string `help:"Tenants whose sessions are answered." default:"default" env:"AGENTSTREAM_WORKER_TENANT"`
	Places      int      `help:"Sessions that are answered at a time; others wait." default:"256" env:"AGENTSTREAM_WORKER_PLACES"`
	AdminListen string   `help:"Address for /metrics, /debug/pprof and health; off switches it off. Never expose it." default:"127.0.0.1:8092" env:"AGENTSTREAM_WORKER_ADMIN_LISTEN" placeholder:"HOST:PORT"`
	process.AdminFlags
	process.RedactFlags
	process.SpanFlags
	process.SealFlags
}

// ModelFlags say which models of which providers answer. Credentials are read from files and from the environment,
// never from flags: a command line is seen by everybody on the machine.
type ModelFlags struct {
	Upstream    []string `help:"An API that models are asked through: openai, openai-responses, anthropic or gemini. Its credential is that of --upstream-key, or of OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY." env:"AGENTSTREAM_UPSTREAM" placeholder:"NAME=URL"`
	UpstreamKey []string `help:"File with the credential of an upstream." env:"AGENTSTREAM_UPSTREAM_KEY" placeholder:"NAME=FILE"`
	Models      []string `help:"Models that are served. With several upstreams each begins with the name of its own and =." env:"AGENTSTREAM_MODELS" placeholder:"[NAME=]MODEL"`
}

// add adds the models of upstreams to a set.
func (f *ModelFlags) add(set *model.Set) error {
	all := map[string]*model.Upstream{}
	var names []string
	for _, text := range f.Upstream {
		name, address, ok := strings.Cut(text, "=")
		u, err := url.Parse(address)
		if !ok || err != nil {
			return fmt.Errorf("--upstream must be NAME=URL, not %.40q", name) // the rest may hold a password
		}
		key, err := f.key(name)
		if err != nil {
			return err
		}
		if all[name], err = model.NewUpstream(name, u, key); err != nil {
			return fmt.Errorf("--upstream: %w", err)
		}
		names = append(names, name)
	}
	served := map[string]bool{}
	for _, text := range f.Models {
		name, asked, ok := strings.Cut(text, "=")
		if !ok && len(names) == 1 {
			name, asked = names[0], text
		}
		u := all[name]
		if u == nil || asked == "" {
			return fmt.Errorf("--models must be NAME=MODEL with the name of an --upstream, not %.100q", text)
		}
		set.Add(u.Provider(), u.Answer, asked)
		served[name] = true
	}
	for _, name := range names {
		if !served[name] {
			return fmt.Errorf("--upstream %s: no --models is served by it", name)
		}
	}
	return nil
}

// key returns the credential of an upstream, "" for none.
func (f *ModelFlags) key(upstream string) (string, error) {
	for _, text := range f.UpstreamKey {
		if name, file, _ := strings.Cut(text, "="); name == upstream {
			b, err := os.ReadFile(file)
			if err != nil {
				return "", fmt.Errorf("--upstream-key: %w", err)
			}
			return strings.TrimSpace(string(b)), nil
		}
	}
	name, _, _ := strings.Cut(upstream, "-")
	return os.Getenv(strings.ToUpper(name) + "_API_KEY"), nil
}

// Run answers until ctx ends. A turn that is under way then ends as cut.
//
//	log ─▶ Follow ─▶ worker ─▶ a turn for each message ─▶ models ─▶ providers
//	 ▲                                                      │
//	 └──────────────────────────────────────────────────────┘
func (c *WorkerCmd) Run(ctx context.Context, log *slog.Logger) error {
	set := answer.Models{Set: &model.Set{}}
	if err := c.add(set.Set); err != nil {
		return err
	}
	if len(c.Upstream) == 0 {
		return errors.New("--upstream: a worker without one has no model")
	}
	m := process.NewMetrics()
	rules, err := c.OpenRules(m, log)
	if err != nil {
		return err
	}
	tracer, sending, err := c.SpanFlags.Open("worker", m, log)
	if err != nil {
		return err
	}
	keys, err := c.OpenSealing()
	if err != nil {
		return err
	}
	start := &node.Start{AdminListen: c.AdminListen, Flags: c.AdminFlags, Metrics: m, Log: log}
	conns, err := start.Dial(ctx, &c.NATSFlags, "worker")
	if err != nil || ctx.Err() != nil {
		return err
	}
	nc := conns[0]
	defer nc.Close()
	var l *pubjs.Log
	err = start.Await(ctx, func(ctx context.Context) (err error) {
		l, err = pubjs.OpenWith(ctx, nc, pubjs.Config{Seal: keys})
		return err
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	cfg := useModels(worker.Config{Log: l, Waker: l, Attend: l.Attend, Ask: l.Ask, Serves: c.sessionFilter(set),
		Most: c.Places, Redact: rules, Seal: keys,
		Logger: log, Hooks: m.ProducerHooks(log)}, set)
	if c.Postgres == "" {
		log.Warn("no --postgres: a session that is older than the stream's window is not answered")
	} else {
		store, err := postgres.Open(ctx, postgres.Config{DSN: c.Postgres, Fresh: cli.FreshDSN(c.Postgres), Logger: log})
		if err != nil {
			return err
		}
		defer store.Close()
		cfg.Archive, cfg.Past = store, openedRows{store, keys}
	}
	cfg.Answer = addSpans(cfg.Answer, tracer)
	part, err := answering(cfg, l, poolName(set), set, c.Tenant, log)
	if err != nil {
		return err
	}
	stages := [][]process.Part{{part}}
	operators, err := process.OpenOperators(ctx, c.AdminListen, c.AdminFlags, m, log)
	if err != nil {
		return err
	}
	defer operators.Close()
	a := &process.Admin{Metrics: m, Log: log, Checks: []edge.Check{{Name: "nats", Run: node.NATSCheck(nc)}}}
	stages = append(stages, append(operators.Parts(a), sending...))
	log.Info("worker: answering", "models", strings.Join(c.Models, ","), "tenants", strings.Join(c.Tenant, ","),
		"admin", c.AdminListen)
	return process.RunStages(ctx, stages...)
}

// sessionFilter returns what reports whether a run is answered: a session that names one of the models, or has
// a workflow.
func (c *WorkerCmd) sessionFilter(set answer.Models) func(schema.RunKey, *schema.Event) bool {
	return func(key schema.RunKey, first *schema.Event) bool {
		return first.Type == schema.TypeSessionCreated && slices.Contains(c.Tenant, key.Tenant) && set.CanServe(first.Payload)
	}
}

// poolName returns the name under which workers with the same models share the sessions.
func poolName(set answer.Models) string {
	all, _ := json.Marshal(set.Providers()) // texts, sorted
	sum := sha256.Sum256(all)
	return "worker-" + hex.EncodeToString(sum[:8])
}
