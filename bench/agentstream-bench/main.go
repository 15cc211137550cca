package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"agentstream/bench/load"
	"agentstream/internal/natskit"
	pubjs "agentstream/producers/natsjs"
)

func main() {
	var o options
	kong.Parse(&o, kong.Name("agentstream-bench"),
		kong.Description("Load an agentstream server, check every delivery, and report."),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.run(ctx, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentstream-bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	URL       string `name:"url" help:"Server to load. Without it, a dev server is started for the test and removed after it." placeholder:"URL"`
	Token     string `help:"Bearer token, with the rights to write and to read. A file or the environment keeps it out of the process list." env:"AGENTSTREAM_TOKEN" placeholder:"TOKEN"`
	TokenFile string `help:"File that holds the bearer token; wins over --token." type:"path" env:"AGENTSTREAM_TOKEN_FILE" placeholder:"FILE"`
	Program   string `name:"agentstream" help:"Program agentstream to start as that dev server. Default: the one beside this program, or in PATH." type:"path" placeholder:"FILE"`

	Scenario  string        `help:"s1: one run, many watchers. s2: many runs at a fixed rate. s3: idle connections. s4: replay of a stored run. s5: publishing alone, read back at the end." enum:"s1,s2,s3,s4,s5" default:"s2"`
	Transport string        `help:"How watchers are connected." enum:"sse,ws" default:"sse"`
	Runs      int           `help:"Runs; 0: the scenario's own number, here and below." default:"0"`
	Watchers  int           `help:"Watchers of each run." default:"0"`
	Rate      int           `help:"Events a second over all runs; -1: as fast as they are taken." default:"0"`
	Batch     int           `help:"Events of one run in one request." default:"0"`
	Size      int           `help:"Bytes of an event as it is published." default:"240"`
	Events    int           `help:"Events of the stored run in s4." default:"10000"`
	Writers   int           `help:"Publishing connections." default:"4"`
	Duration  time.Duration `help:"Length of what is measured." default:"10s"`
	Warm      time.Duration `help:"What goes before it and is not measured, though accounted for." default:"1s"`

	Mode   string `help:"http: publish by POST. stream: publish lines of many runs in requests that stay open. sdk: publish into NATS as an agent does; needs --nats with --url." enum:"http,stream,sdk" default:"http"`
	NATS   string `name:"nats" help:"NATS servers of the deployment; implies --mode=sdk." placeholder:"URL,…"`
	Creds  string `name:"nats-creds" help:"NATS credentials file." type:"path" placeholder:"FILE"`
	Tenant string `help:"Tenant to publish as with --mode=sdk; that of the token." default:"default"`

	PID   []int    `name:"pid" help:"Processes of the server on this machine, to measure with their children."`
	Admin []string `help:"Operators' addresses of the server's processes, to measure by their /metrics." placeholder:"URL"`

	JSON string `name:"json" help:"Write the result as JSON; - is the standard output, instead of the report." placeholder:"FILE"`
	SVG  string `name:"svg" help:"Draw a picture of the result." type:"path" placeholder:"FILE"`
}

// run puts the load on and writes the report to out and what happens to notes. It returns an error when something was
// lost, doubled or out of order, and when the load could not be put on as asked.
func (o *options) run(ctx context.Context, out, notes io.Writer) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Hooks = progress(notes)
	if o.URL == "" {
		dev, err := startServer(ctx, o.Program, o.Mode == "sdk")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.stop()) }()
		cfg.URL, cfg.Probe, o.NATS = dev.url, dev.probe, dev.nats
		fmt.Fprintf(notes, "agentstream-bench: a dev server was started for this test at %s\n", dev.url)
	}
	if o.NATS != "" {
		nc, err := o.dial()
		if err != nil {
			return fmt.Errorf("--nats: %w", err)
		}
		defer nc.Close()
		if cfg.Log, err = pubjs.Open(ctx, nc); err != nil {
			return fmt.Errorf("--nats: %w", err)
		}
	}
	r, err := load.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if err := o.report(out, r); err != nil {
		return err
	}
	return r.Err()
}

func (o *options) dial() (*nats.Conn, error) {
	var opts []nats.Option
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	return natskit.Dial(o.NATS, "agentstream bench", opts...)
}

// config checks what the engine cannot see; its errors name the flag.
func (o *options) config() (cfg load.Config, err error) {
	token := o.Token
	if o.TokenFile != "" {
		text, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return cfg, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if o.NATS != "" {
		o.Mode = "sdk"
	}
	switch {
	case o.Mode == "sdk" && o.NATS == "" && o.URL != "":
		return cfg, errors.New("--mode=sdk publishes into NATS: name it by --nats")
	case o.URL == "" && (o.NATS != "" || len(o.PID)+len(o.Admin) > 0):
		return cfg, errors.New("--nats, --pid and --admin are of a server that --url names")
	case o.URL != "" && o.Program != "":
		return cfg, errors.New("--agentstream is the program to start when there is no --url")
	case o.URL == "":
		token = "" // of somebody else's server
	}
	var probes []load.Probe
	for _, pid := range o.PID {
		probes = append(probes, load.OfProcess(pid))
	}
	for _, admin := range o.Admin {
		if !strings.Contains(admin, "://") {
			admin = "http://" + admin
		}
		if _, err := url.Parse(admin); err != nil {
			return cfg, fmt.Errorf("--admin: %w", err)
		}
		probes = append(probes, load.OfMetrics(strings.TrimRight(admin, "/")+"/metrics"))
	}
	return load.Config{URL: strings.TrimRight(o.URL, "/"), Token: token, Scenario: load.Scenario(o.Scenario),
		Transport: load.WatchTransport(o.Transport),
		Runs:      o.Runs, Watchers: o.Watchers, Rate: o.Rate, Batch: o.Batch, Size: o.Size, Events: o.Events,
		Writers: o.Writers,
		Stream:  o.Mode == "stream", Duration: o.Duration, Warm: o.Warm, Tenant: o.Tenant, Probe: load.Sum(probes...)}, nil
}

// progress prints how far the load is.
func progress(w io.Writer) load.Hooks {
	return load.Hooks{
		Phase: func(name string) { fmt.Fprintf(w, "agentstream-bench: %s\n", name) },
		Progress: func(p load.Progress) {
			fmt.Fprintf(w, "agentstream-bench: %5.1fs  %d acknowledged, %d delivered\n", p.Elapsed.Seconds(), p.Acked,
				p.Delivered)
		},
	}
}

func (o *options) report(out io.Writer, r *load.Result) error {
	if o.SVG != "" {
		if err := writeToFile(o.SVG, r.SVG); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	asJSON := func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if o.JSON == "-" {
		return asJSON(out)
	}
	if o.JSON != "" {
		if err := writeToFile(o.JSON, asJSON); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	return r.Text(out)
}

func writeToFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
