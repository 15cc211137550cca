package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/deadletters"
	"agentstream/cmd/agentstream/internal/export"
	"agentstream/cmd/agentstream/internal/publish"
	"agentstream/cmd/agentstream/internal/retention"
	"agentstream/cmd/agentstream/internal/runs"
	"agentstream/cmd/agentstream/internal/timeline"
)

// CLI is the command line.
type CLI struct {
	Config string `help:"Configuration file: a JSON object whose keys are the names of flags." type:"path" env:"AGENTSTREAM_CONFIG" placeholder:"FILE"`
	Log    string `help:"Log format." enum:"text,json" default:"text" env:"AGENTSTREAM_LOG"`
	Level  string `help:"Log level." enum:"debug,info,warn,error" default:"info" env:"AGENTSTREAM_LEVEL"`

	Dev       DevCmd              `cmd:"" help:"Run everything in one process, on embedded parts, with a demo run."`
	Edge      EdgeCmd             `cmd:"" help:"Serve clients from an outside NATS."`
	Worker    WorkerCmd           `cmd:"" help:"Answer sessions and scenarios with models of providers."`
	Persist   PersistCmd          `cmd:"" help:"Write the log of an outside NATS into PostgreSQL."`
	Migrate   MigrateCmd          `cmd:"" help:"Create or update streams and tables."`
	Retention retention.Cmd       `cmd:"" help:"Remove runs whose time is over, and say which those are."`
	Hold      retention.HoldCmd   `cmd:"" help:"Legal holds: what they name is kept."`
	Delete    retention.DeleteCmd `cmd:"" help:"Remove a run or a tenant everywhere."`
	Publish   publish.Cmd         `cmd:"" help:"Publish files into a run."`
	Proxy     ProxyCmd            `cmd:"" help:"Stand before model providers and write a run beside every call."`
	Runs      runs.Cmd            `cmd:"" help:"List runs."`
	Tail      timeline.TailCmd    `cmd:"" help:"Follow a run."`
	Replay    timeline.ReplayCmd  `cmd:"" help:"Play a stored run with its original timing."`
	Export    export.Cmd          `cmd:"" help:"Write runs out of the archive into files, JSONL or Parquet."`

	Approve  runs.ApproveCmd  `cmd:"" help:"Accept the plan of a run." group:"Commands to a run"`
	Reject   runs.RejectCmd   `cmd:"" help:"Refuse the plan of a run." group:"Commands to a run"`
	Pause    runs.PauseCmd    `cmd:"" help:"Ask a run to wait." group:"Commands to a run"`
	Resume   runs.ResumeCmd   `cmd:"" help:"Let a paused run go on." group:"Commands to a run"`
	Redirect runs.RedirectCmd `cmd:"" help:"Give a run another instruction." group:"Commands to a run"`
	Cancel   runs.CancelCmd   `cmd:"" help:"Ask a run to end." group:"Commands to a run"`
	Answer   runs.AnswerCmd   `cmd:"" help:"Answer a question of a run." group:"Commands to a run"`
	Say      runs.SayCmd      `cmd:"" help:"Say something to a run; after its end, a follow-up." group:"Commands to a run"`

	Archive     archive.Cmd     `cmd:"" help:"List, check and write runs that are kept as objects."`
	DeadLetters deadletters.Cmd `cmd:"" name:"deadletters" help:"Look into, retry and drop what the archive could not store."`

	Healthcheck HealthcheckCmd `cmd:"" help:"Ask an edge or a persister on this machine whether it is ready; status 1 when it is not."`

	Doctor  archive.DoctorCmd `cmd:"" help:"Compare the log with the archive, and name what one of them lacks."`
	Auth    AuthCmd           `cmd:"" help:"Make credentials."`
	Version VersionCmd        `cmd:"" help:"Print versions."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run is the program without the process, for tests: it returns the exit status.
func run(ctx context.Context, args []string) int {
	var cli CLI
	parser, err := newParser(&cli, args, os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentstream:", err)
		return 80
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentstream:", err)
		fmt.Fprintln(os.Stderr, "Run agentstream --help for usage.")
		return 80
	}
	kctx.Bind(cli.logger())
	kctx.BindTo(ctx, (*context.Context)(nil))
	if err := kctx.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "agentstream:", err)
		return 1
	}
	return 0
}

func newParser(cli *CLI, args []string, env func(string) (string, bool)) (*kong.Kong, error) {
	settings, err := loadSettings(args, env)
	if err != nil {
		return nil, err
	}
	return kong.New(cli,
		kong.Name("agentstream"),
		kong.Description("The durable, replayable event stream behind AI agents."),
		kong.UsageOnError(), kong.Resolvers(settings),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
}

func (c *CLI) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // kong has checked it
	opts := &slog.HandlerOptions{Level: level}
	if c.Log == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}
