package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/backup"
	cmdline "agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/completion"
	"agentstream/cmd/agentstream/internal/deadletters"
	"agentstream/cmd/agentstream/internal/doctor"
	"agentstream/cmd/agentstream/internal/export"
	"agentstream/cmd/agentstream/internal/keys"
	"agentstream/cmd/agentstream/internal/publish"
	"agentstream/cmd/agentstream/internal/redaction"
	"agentstream/cmd/agentstream/internal/retention"
	"agentstream/cmd/agentstream/internal/runs"
	"agentstream/cmd/agentstream/internal/taps"
	"agentstream/cmd/agentstream/internal/timeline"
)

// CLI is the command line.
type CLI struct {
	Config   string           `help:"Configuration file: YAML or JSON, an object whose keys are the names of flags." type:"path" env:"AGENTSTREAM_CONFIG" placeholder:"FILE"`
	Log      string           `help:"Log format: text or json." enum:"text,json" default:"text" env:"AGENTSTREAM_LOG"`
	Level    string           `help:"Log level: debug, info, warn or error." enum:"debug,info,warn,error" default:"info" env:"AGENTSTREAM_LEVEL"`
	Revision kong.VersionFlag `name:"version" help:"Print the version of this program."`

	Dev     DevCmd     `cmd:"" group:"server" help:"Run everything in one process, with a demo run to look at. Begin here."`
	Edge    EdgeCmd    `cmd:"" group:"server" help:"Serve clients and the console. Needs NATS."`
	Persist PersistCmd `cmd:"" group:"server" help:"Store events in PostgreSQL for good. Needs NATS."`
	Worker  WorkerCmd  `cmd:"" group:"server" help:"Answer messages of sessions with language models. Needs NATS."`
	Tap     taps.Cmd   `cmd:"" group:"server" help:"Deliver all events to files, webhooks and databases. Needs NATS."`
	Proxy   ProxyCmd   `cmd:"" group:"server" help:"Record the model calls of an agent without changing it: forward them and write them into a run."`

	Record RecordCmd `cmd:"" group:"watch" help:"Run an agent and record all of its model calls in one run."`

	Run     RunCmds            `cmd:"" group:"watch" help:"List, watch and control runs."`
	Publish publish.PublishCmd `cmd:"" group:"watch" help:"Write events from files or standard input into a run."`
	Demo    publish.DemoCmd    `cmd:"" group:"watch" help:"Play a demo run into a server."`

	Export    export.ExportCmd    `cmd:"" group:"keep" help:"Write stored runs to files, as JSON lines or Parquet."`
	Archive   archive.Cmd         `cmd:"" group:"keep" help:"List, check and write runs that are kept as objects."`
	Retention retention.Cmd       `cmd:"" group:"keep" help:"Set how long runs are kept, and remove what is due."`
	Hold      retention.HoldCmd   `cmd:"" group:"keep" help:"Keep runs whatever retention says (legal hold)."`
	Redact    redaction.RedactCmd `cmd:"" group:"keep" help:"Check rules of redaction, try them on archived runs, and apply them to all that is stored."`
	Delete    retention.DeleteCmd `cmd:"" group:"keep" help:"Remove a run or a tenant everywhere, at once."`

	Migrate     MigrateCmd        `cmd:"" group:"operate" help:"Create or update streams and tables."`
	Backup      backup.BackupCmd  `cmd:"" group:"operate" help:"Copy tables, objects and streams of a deployment into a folder, while it serves."`
	Restore     backup.RestoreCmd `cmd:"" group:"operate" help:"Bring a backup back, into servers that are empty."`
	Import      ImportCmd         `cmd:"" group:"operate" help:"Move the runs of a dev server's folder, blobs included, into a deployment."`
	Keys        keys.KeysCmd      `cmd:"" group:"operate" help:"Make, list and delete the keys that content of tenants is encrypted with."`
	Auth        AuthCmd           `cmd:"" group:"operate" help:"Make API keys and development tokens."`
	Healthcheck HealthcheckCmd    `cmd:"" group:"operate" help:"Ask a server on this machine whether it is ready; the status is 1 when it is not."`
	Doctor      doctor.SetupCmd   `cmd:"" group:"operate" help:"Find what is set up wrongly around the edges, and compare the log with the archive."`
	DeadLetters deadletters.Cmd   `cmd:"" group:"operate" name:"deadletters" help:"Show, retry and drop what could not be stored."`

	Help       HelpCmd              `cmd:"" group:"program" help:"Print help for a command."`
	Completion completion.ScriptCmd `cmd:"" group:"program" help:"Print a script that completes commands in bash, zsh or fish."`
	Version    VersionCmd           `cmd:"" group:"program" help:"Print the versions of this program and of its parts."`

	// Short forms of run list, run tail …
	Runs runs.ListCmd `cmd:"" help:"Short for run list."`
	RunVerbs
}

// RunCmds are the commands about runs.
type RunCmds struct {
	List runs.ListCmd `cmd:"" aliases:"ls" help:"List runs, the newest first."`
	RunVerbs
}

// RunVerbs are about one run. They stand at the top as well, as short forms: tail is run tail.
type RunVerbs struct {
	Tail     timeline.TailCmd   `cmd:"" help:"Watch a run as it happens."`
	Replay   timeline.ReplayCmd `cmd:"" help:"Play a stored run again, with its original timing."`
	Say      runs.SayCmd        `cmd:"" help:"Send a message to a run; also after its end."`
	Answer   runs.AnswerCmd     `cmd:"" help:"Answer a question that a run has asked."`
	Approve  runs.ApproveCmd    `cmd:"" help:"Accept the plan of a run."`
	Reject   runs.RejectCmd     `cmd:"" help:"Refuse the plan of a run."`
	Pause    runs.PauseCmd      `cmd:"" help:"Ask a run to pause."`
	Resume   runs.ResumeCmd     `cmd:"" help:"Let a paused run go on."`
	Redirect runs.RedirectCmd   `cmd:"" help:"Give a run another instruction."`
	Cancel   runs.CancelCmd     `cmd:"" help:"Ask a run, or all runs of a state, to end."`
	Update   runs.UpdateCmd     `cmd:"" help:"Say by what a run is found: title, tags, metadata."`
}

// groups are the headings of the help.
var groups = []kong.Group{
	{Key: "server", Title: "Server:"},
	{Key: "watch", Title: "Watch and control:",
		Description: "Short forms: runs is run list, tail is run tail, pause is run pause, and so on."},
	{Key: "keep", Title: "Keep:"},
	{Key: "operate", Title: "Operate:"},
	{Key: "program", Title: "This program:"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run is the program without the process, for tests: it returns the exit status.
func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	var cli CLI
	if args[0] == completion.Hook {
		parser, err := newParser(&cli, &settings{env: os.LookupEnv})
		if err != nil {
			return statusUsage
		}
		hideShortForms(parser.Model)
		completion.Print(os.Stdout, parser.Model.Node, args[1:])
		return 0
	}
	settings, err := loadSettings(args, os.LookupEnv)
	if err != nil {
		return wrong(err)
	}
	parser, err := newParser(&cli, settings)
	if err != nil {
		return wrong(err)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		return wrong(err)
	}
	for _, name := range unknownVariables(parser.Model.Node, os.Environ()) {
		cli.warn(name + " is set in the environment, and there is no such setting")
	}
	kctx.Bind(cli.logger(), &cli, settings, redaction.FolderOpener(openFolderLog))
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run()
	if status := cmdline.ExitStatus(0); errors.As(err, &status) {
		return int(status)
	}
	if errors.Is(err, errShown) {
		return statusUsage
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentstream:", errorText(err))
		if hint := hintOf(kctx, err); hint != "" {
			fmt.Fprintln(os.Stderr, hint)
		}
		return 1
	}
	return 0
}

// statusUsage is the exit status of a command line that cannot be read, as that of other programs.
const statusUsage = 2

// hintOf returns what a person may do about an error; "" for what says it itself.
func hintOf(kctx *kong.Context, err error) string {
	switch {
	case errors.Is(err, agentstream.ErrUnreachable):
		return fmt.Sprintf("is the server running at %s? (--server)", serverOf(kctx))
	case errors.Is(err, agentstream.ErrUnauthorized):
		return "give a token that the server accepts: --token-file, or AGENTSTREAM_TOKEN"
	case errors.Is(err, agentstream.ErrNotFound):
		return "agentstream runs lists the runs that this credential may see"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process listens there: stop it, or give the flag another HOST:PORT"
	}
	return ""
}

// wrong reports wrong usage.
func wrong(err error) int {
	fmt.Fprintln(os.Stderr, "agentstream:", usageText(err))
	if at := (*kong.ParseError)(nil); errors.As(err, &at) && at.Context != nil && at.Context.Selected() != nil {
		fmt.Fprintf(os.Stderr, "Run %s --help for usage.\n",
			strings.ReplaceAll(at.Context.Selected().FullPath(), " (ls)", ""))
	} else {
		fmt.Fprintln(os.Stderr, "Run agentstream help for usage.")
	}
	return statusUsage
}

// serverOf returns the address that the command was told to ask.
func serverOf(kctx *kong.Context) any {
	for _, f := range kctx.Flags() {
		if f.Name == "server" {
			return kctx.FlagValue(f)
		}
	}
	return "its address"
}

func newParser(cli *CLI, s *settings) (*kong.Kong, error) {
	return kong.New(cli,
		kong.Name("agentstream"),
		kong.Description("Keeps every event of an AI agent's run, in order, and lets any number of people and programs watch the run and control it."),
		kong.UsageOnError(), kong.Resolvers(s), kong.ExplicitGroups(groups),
		kong.Vars{"version": "agentstream " + cmdline.Version() + "\n"},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.Help(func(options kong.HelpOptions, kctx *kong.Context) error {
			hideShortForms(kctx.Model)
			describe(kctx.Model)
			return kong.DefaultHelpPrinter(options, kctx)
		}),
	)
}

// hideShortForms leaves the short forms out of what is listed. For a name that is misspelt they are proposed like all
// others.
func hideShortForms(model *kong.Application) {
	short := reflect.TypeFor[RunVerbs]()
	for _, n := range model.Children {
		_, verb := short.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, n.Name) })
		n.Hidden = n.Hidden || verb || n.Name == "runs"
	}
}

// errShown reports wrong usage that was reported already.
var errShown = errors.New("wrong usage")

// HelpCmd prints help as --help does.
type HelpCmd struct {
	Command []string `arg:"" optional:"" help:"Command; without it, an overview."`
}

// Run prints the help of the command.
func (c *HelpCmd) Run(ctx context.Context) error {
	if status := run(ctx, append(c.Command, "--help")); status != 0 {
		return errShown
	}
	return nil
}

// warn writes what does not stop the command.
func (c *CLI) warn(text string) {
	if c.Log == "json" {
		c.logger().Warn(text)
		return
	}
	fmt.Fprintln(os.Stderr, "agentstream:", text)
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
