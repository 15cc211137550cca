package main

import (
	"context"
	"encoding/json"
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
	file := flag.String("file", "docker-compose.yml", "the compose `file`")
	dir := flag.String("dir", "", "`folder` for data, configurations and secrets' mounts; it is made when it is not there")
	binary := flag.String("agentstream", "bin/agentstream", "the `program` that the file builds an image of")
	without := flag.String("without", "", "`services` to leave out, with commas between them")
	flag.Parse()
	if *dir == "" {
		fail(fmt.Errorf("-dir is required"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fail(run(ctx, *file, *dir, *binary, strings.Split(*without, ",")))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "topology:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, file, dir, binary string, without []string) error {
	for _, path := range []*string{&file, &dir, &binary} { // services run in folders of their own
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	f, err := read(file)
	if err != nil {
		return err
	}
	if err := f.makeSecrets(ctx, filepath.Dir(file)); err != nil {
		return err
	}
	for _, name := range without {
		delete(f.Services, name)
	}
	t := &topology{file: f, dir: dir, binary: binary, ports: map[string]int{}, ended: make(chan error, len(f.Services)),
		running: map[string]*process{}}
	defer t.stop()
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
