package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == natsServer {
		fail(serveNATS(os.Args[2:]))
	}
	var from source
	flag.StringVar(&from.compose, "file", "docker-compose.yml", "the compose `file`; with -chart, that of PostgreSQL")
	flag.StringVar(&from.chart, "chart", "", "rendered manifests of the Helm chart, a `file`; its pods are started, and no service of the compose file but PostgreSQL")
	flag.StringVar(&from.given, "given", "", "`folder` of the Secrets that are there before the chart: a folder for each, a file for each key")
	natsValues := flag.String("nats-values", "deploy/helm/nats-values.yaml", "values `files` of the NATS chart, with commas between them")
	dir := flag.String("dir", "", "`folder` for data, configurations and secrets' mounts; it is made when it is not there")
	binary := flag.String("agentstream", "bin/agentstream", "the `program` that the file builds an image of")
	without := flag.String("without", "", "`services` to leave out, with commas between them")
	flag.Parse()
	if *dir == "" {
		fail(fmt.Errorf("-dir is required"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	from.natsValues = strings.Split(*natsValues, ",")
	fail(run(ctx, from, *dir, *binary, strings.Split(*without, ",")))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "topology:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// source is what describes the services.
type source struct {
	compose, chart, given string
	natsValues            []string
}

// read returns the services of the compose file, or of the chart.
func (from source) read(ctx context.Context) (*file, error) {
	compose, err := filepath.Abs(from.compose)
	if err != nil {
		return nil, err
	}
	f, err := read(compose)
	if err != nil {
		return nil, err
	}
	if err := f.makeSecrets(ctx, filepath.Dir(compose)); err != nil || from.chart == "" {
		return f, err
	}
	return f, from.addChart(f)
}

// addChart puts the pods of the chart, and of NATS, into the place of all services but PostgreSQL.
func (from source) addChart(f *file) error {
	for _, name := range keysInOrder(f.Services) {
		if f.Services[name].kind() != "postgres" {
			delete(f.Services, name)
		}
	}
	f.hosts = map[string]string{}
	objects, err := readObjects(from.chart)
	if err != nil {
		return err
	}
	given, err := readGiven(from.given)
	if err != nil {
		return err
	}
	values, err := readNATSValues(from.natsValues)
	if err != nil {
		return err
	}
	c := &chart{file: f, objects: objects, secrets: given, configs: givenTexts{}}
	if err := errors.Join(c.secrets.add(objects, "Secret"), c.configs.add(objects, "ConfigMap")); err != nil {
		return err
	}
	first := c.addNATS(values)
	for name := range f.Services {
		first[name] = dependency{Condition: healthy}
	}
	return errors.Join(c.addPods(first), c.addIngress())
}

func run(ctx context.Context, from source, dir, binary string, without []string) error {
	for _, path := range []*string{&dir, &binary} { // services run in folders of their own
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	f, err := from.read(ctx)
	if err != nil {
		return err
	}
	for _, name := range without {
		delete(f.Services, name)
	}
	t := &topology{file: f, dir: dir, binary: binary, ports: map[string]int{}, ended: make(chan error, 2*len(f.Services)),
		running: map[string]*process{}, kubelets: map[string]*kubelet{}}
	err = t.serve(ctx)
	t.stop()
	if err == nil && from.chart != "" {
		err = json.NewEncoder(os.Stdout).Encode(t.outcomes())
	}
	return err
}

// serve starts everything, says so, and returns when ctx ends or something has ended that is to run on.
func (t *topology) serve(ctx context.Context) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(t.describe()); err != nil {
		return err
	}
	select {
	case err := <-t.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// natsServer is the argument that makes this program a NATS server.
const natsServer = "nats-server"

// serveNATS is the main function of the image nats, of which it takes --config FILE.
func serveNATS(args []string) error {
	flags := flag.NewFlagSet(natsServer, flag.ContinueOnError)
	config := flags.String("config", "", "configuration `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	opts, err := server.ProcessConfigFile(*config)
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}
