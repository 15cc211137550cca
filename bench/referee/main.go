package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"agentstream/bench/floor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "referee:", err)
		os.Exit(1)
	}
}

const usage = "referee run|growth|profile|report [flags], or serve, sdk and floor, which these start; -h after the command lists its flags"

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:])
	case "sdk":
		return sdk(ctx, args[1:], os.Stdout)
	case shapeFloor:
		if len(args) != 3 {
			return errors.New("referee floor ADDRESS FOLDER")
		}
		l, err := net.Listen("tcp", args[1])
		if err != nil {
			return err
		}
		return floor.Serve(ctx, l, args[2])
	case "run", "growth", "profile", "report":
		return judge(ctx, args[0], args[1:])
	}
	return errors.New(usage)
}

// options of the commands that people give.
type options struct {
	out, harness, source, agentstream, before, natsServer, lock, only, shapes, page string
	rounds, port                                                                    int
	short, strict                                                                   bool
}

func parse(name string, args []string) (o options, err error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&o.out, "out", filepath.Join("bin", "referee"),
		"folder of the results; a run that was interrupted goes on there")
	f.StringVar(&o.harness, "harness", os.Getenv("REFEREE"), "built harness ($REFEREE)")
	f.StringVar(&o.source, "source", os.Getenv("BENCH_SRC"),
		"source of the harness, built when there is no built one ($BENCH_SRC)")
	f.StringVar(&o.agentstream, "agentstream", filepath.Join("bin", "agentstream"), "the product's binary")
	f.StringVar(&o.before, "before", os.Getenv("REFEREE_BEFORE"),
		"an earlier binary of the product, for the shapes dev-before and split-before ($REFEREE_BEFORE)")
	f.StringVar(&o.natsServer, "nats-server", os.Getenv("NATS_SERVER"),
		"nats-server binary; built from the module when there is none ($NATS_SERVER)")
	f.StringVar(&o.lock, "lock", os.Getenv("REFEREE_LOCK"), "file to lock for each measurement ($REFEREE_LOCK)")
	f.StringVar(&o.only, "only", "", "lines to measure, by commas: names, or beginnings of names")
	f.StringVar(&o.shapes, "shapes", shapeDev+","+shapeSplit,
		"shapes of the product, by commas; floor is its parts by themselves")
	f.StringVar(&o.page, "page", "", "page that gets the tables between its marks; those of how cost grows with growth")
	f.IntVar(&o.rounds, "rounds", 3, "rounds")
	f.IntVar(&o.port, "port", 18080, "first of four ports")
	f.BoolVar(&o.short, "short", false, "short timed parts: shows that it works; the figures are worth nothing")
	f.BoolVar(&o.strict, "strict", false, "fail when a bar is not held")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%s: %q is no flag", name, f.Arg(0))
	}
	return o, nil
}

// judge measures what is missing, if it is asked to, and reports on what there is.
func judge(ctx context.Context, name string, args []string) error {
	o, err := parse(name, args)
	if err != nil {
		return err
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	res, err := openResults(o.out)
	if err != nil {
		return err
	}
	shapes := strings.Split(o.shapes, ",")
	for _, s := range shapes {
		base, old := strings.CutSuffix(s, beforeSuffix)
		if base != shapeDev && base != shapeSplit && s != shapeFloor {
			return fmt.Errorf("no shape %q", s)
		}
		if old && o.before == "" && name != "report" {
			return fmt.Errorf("shape %s: set REFEREE_BEFORE to an earlier binary", s)
		}
	}
	var measured error
	if name != "report" {
		if measured = o.measure(ctx, name, shapes, res); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if name == "profile" {
		return errors.Join(measured, res.reportProfiles(ctx, profileLine(o.short), shapes))
	}
	scenariosPage, growthPage := o.page, ""
	if name == "growth" {
		scenariosPage, growthPage = "", o.page
	}
	passed, err := res.report(o.short, shapes, scenariosPage, growthPage)
	if err := errors.Join(measured, err); err != nil {
		return err
	}
	fmt.Println("report:", o.out)
	if o.strict && !passed {
		return errors.New("not every bar is held")
	}
	return nil
}

func (o options) measure(ctx context.Context, name string, shapes []string, res *results) (err error) {
	lines := scenarios(o.short)
	if name == "growth" {
		lines = slices.Concat(growth(o.short), capacityNeeds(lines))
	}
	if name == "profile" {
		lines = []line{profileLine(o.short)}
	}
	lines = o.selectLines(lines)
	if len(lines) == 0 {
		return fmt.Errorf("no line begins with %q", o.only)
	}
	r := &referee{lock: o.lock, ports: ports{first: o.port}, shapes: shapes, rounds: o.rounds, results: res,
		say: os.Stderr}
	if err := o.binaries(ctx, r); err != nil {
		return err
	}
	of := subject{Short: o.short}
	var err1, err2 error
	of.Agentstream, err1 = hashOf(r.agentstream)
	of.Harness, err2 = hashOf(r.harness)
	var err3 error
	if r.before != "" {
		of.Before, err3 = hashOf(r.before)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if err := res.claim(of); err != nil {
		return err
	}
	defer func() {
		if r.postgres != nil {
			err = errors.Join(err, r.postgres.stop())
		}
	}()
	return r.measureAll(ctx, lines)
}

// selectLines returns the lines that --only names.
func (o options) selectLines(lines []line) []line {
	if o.only == "" {
		return lines
	}
	names := make(map[string]bool)
	for _, l := range lines {
		names[l.id] = true
	}
	wanted := strings.Split(o.only, ",")
	return slices.DeleteFunc(lines, func(l line) bool {
		return !slices.ContainsFunc(wanted, func(w string) bool { return l.id == w || !names[w] && strings.HasPrefix(l.id, w) })
	})
}

// binaries finds the programs, or builds them beside the results.
func (o options) binaries(ctx context.Context, r *referee) (err error) {
	if r.self, err = os.Executable(); err != nil {
		return err
	}
	if r.agentstream, err = filepath.Abs(o.agentstream); err != nil {
		return err
	}
	if r.before = o.before; r.before != "" {
		if r.before, err = filepath.Abs(o.before); err != nil {
			return err
		}
	}
	if o.harness == "" && o.source == "" {
		return errors.New("no harness: set REFEREE to the built program or BENCH_SRC to its source")
	}
	if r.harness, err = filepath.Abs(o.harness); err != nil {
		return err
	}
	if o.harness == "" {
		r.harness = filepath.Join(o.out, "bin", "harness")
		if err := goBuild(ctx, o.source, r.harness, "."); err != nil {
			return err
		}
	}
	if r.natsServer, err = filepath.Abs(o.natsServer); err != nil {
		return err
	}
	if o.natsServer == "" {
		r.natsServer = filepath.Join(o.out, "bin", "nats-server")
		if err := goBuild(ctx, ".", r.natsServer, "github.com/nats-io/nats-server/v2"); err != nil {
			return err
		}
	}
	// The harness looks for its references' binaries by name.
	if filepath.Base(r.natsServer) != "nats-server" {
		return fmt.Errorf("%s: the harness must find a program that is named nats-server", r.natsServer)
	}
	for _, file := range []string{r.agentstream, r.harness, r.natsServer} {
		if _, err := os.Stat(file); err != nil {
			return err
		}
	}
	return nil
}

func goBuild(ctx context.Context, dir, to, what string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", to, what)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", what, err, out)
	}
	return nil
}
