package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/load"
	pubjs "agentstream/producers/natsjs"
)

// Cmd puts a measured load on a server and checks every delivery.
type Cmd struct {
	URL       string `name:"url" help:"Server to load. Without it, a dev server is started for the test and removed after it." placeholder:"URL"`
	Token     string `help:"Bearer token, with the rights to write and to read. A file or the environment keeps it out of the process list." env:"AGENTSTREAM_TOKEN" placeholder:"TOKEN"`
	TokenFile string `help:"File that holds the bearer token; wins over --token." type:"path" placeholder:"FILE"`

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

	Mode   string `help:"http: publish by POST. sdk: publish into NATS as an agent does; needs --nats with --url." enum:"http,sdk" default:"http"`
	NATS   string `name:"nats" help:"NATS servers of the deployment; implies --mode=sdk." placeholder:"URL,…"`
	Creds  string `name:"nats-creds" help:"NATS credentials file." type:"path" placeholder:"FILE"`
	Tenant string `help:"Tenant to publish as with --mode=sdk; that of the token." default:"default"`

	PID   []int    `name:"pid" help:"Processes of the server on this machine, to measure with their children."`
	Admin []string `help:"Operators' addresses of the server's processes, to measure by their /metrics." placeholder:"URL"`

	JSON string `name:"json" help:"Write the result as JSON; - is the standard output, instead of the report." placeholder:"FILE"`
	SVG  string `name:"svg" help:"Draw a picture of the result." type:"path" placeholder:"FILE"`

	cli.Streams `kong:"-"`
	// program is the binary that is started as the server; "" is this one.
	program string
}

// Run puts the load on and reports. It fails when something was lost, doubled or out of order, and
// when the load could not be put on as asked.
func (c *Cmd) Run(ctx context.Context, log *slog.Logger) (err error) {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if c.URL == "" {
		dev, err := startBenchServer(ctx, c.program, c.Mode == "sdk")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.stop()) }()
		cfg.URL, cfg.Probe, c.NATS = dev.url, dev.probe, dev.nats
		fmt.Fprintf(c.Stderr(), "agentstream: a dev server was started for this test at %s\n", dev.url)
	}
	if c.NATS != "" {
		flags := cli.NATSFlags{NATS: c.NATS, Creds: c.Creds}
		nc, err := flags.Dial("bench", log)
		if err != nil {
			return err
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
	if err := c.report(r); err != nil {
		return err
	}
	return r.Err()
}

// config checks what the engine cannot see; its errors name the flag.
func (c *Cmd) config() (cfg load.Config, err error) {
	token := c.Token
	if c.TokenFile != "" {
		text, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return cfg, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if c.NATS != "" {
		c.Mode = "sdk"
	}
	switch {
	case c.Mode == "sdk" && c.NATS == "" && c.URL != "":
		return cfg, errors.New("--mode=sdk publishes into NATS: name it by --nats")
	case c.URL == "" && (c.NATS != "" || len(c.PID)+len(c.Admin) > 0):
		return cfg, errors.New("--nats, --pid and --admin are of a server that --url names")
	case c.URL == "":
		token = "" // of somebody else's server
	}
	var probes []load.Probe
	for _, pid := range c.PID {
		probes = append(probes, load.OfProcess(pid))
	}
	for _, admin := range c.Admin {
		if !strings.Contains(admin, "://") {
			admin = "http://" + admin
		}
		if _, err := url.Parse(admin); err != nil {
			return cfg, fmt.Errorf("--admin: %w", err)
		}
		probes = append(probes, load.OfMetrics(strings.TrimRight(admin, "/")+"/metrics"))
	}
	return load.Config{URL: strings.TrimRight(c.URL, "/"), Token: token, Scenario: load.Scenario(c.Scenario), Transport: load.Transport(c.Transport),
		Runs: c.Runs, Watchers: c.Watchers, Rate: c.Rate, Batch: c.Batch, Size: c.Size, Events: c.Events, Writers: c.Writers,
		Duration: c.Duration, Warm: c.Warm, Tenant: c.Tenant, Probe: load.Sum(probes...), Hooks: c.progress()}, nil
}

// progress prints how far the load is.
func (c *Cmd) progress() load.Hooks {
	return load.Hooks{
		Phase: func(name string) { fmt.Fprintf(c.Stderr(), "agentstream: %s\n", name) },
		Progress: func(p load.Progress) {
			fmt.Fprintf(c.Stderr(), "agentstream: %5.1fs  %d acknowledged, %d delivered\n", p.Elapsed.Seconds(), p.Acked, p.Delivered)
		},
	}
}

func (c *Cmd) report(r *load.Result) error {
	if c.SVG != "" {
		if err := writeToFile(c.SVG, r.SVG); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	asJSON := func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if c.JSON == "-" {
		return asJSON(c.Stdout())
	}
	if c.JSON != "" {
		if err := writeToFile(c.JSON, asJSON); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	return r.Text(c.Stdout())
}

func writeToFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
