package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"agentstream/bench/child"
)

// ports of one target, from a first one on.
type ports struct{ first int }

func (p ports) at(i int) string      { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.first+i)) }
func (p ports) edge() string         { return p.at(0) }
func (p ports) admin() string        { return p.at(1) } // of the edge, or of dev
func (p ports) nats() string         { return p.at(2) }
func (p ports) persistAdmin() string { return p.at(3) }

// server is one shape of the product as a process tree.
type server struct {
	shape, agentstream, natsServer string
	state, logs                    string
	ports                          ports
	openNATS                       bool // dev: other processes may publish
	ingest                         bool // events are taken over plain NATS
	sync                           bool // the log is written to the disk before it acknowledges
	gentle                         bool // what has been taken is stored before the end
	children                       []*child.Child
}

// pidsFile lies in the state's folder and names the processes once all of them have started.
const pidsFile = "pids.json"

// serve is the command that the harness starts and whose tree it measures. It ends when it is asked
// to, when a process of the product has ended, or when the harness is gone.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	s := &server{}
	flags.StringVar(&s.shape, "shape", shapeDev,
		"dev, split or floor; split takes its PostgreSQL from AGENTSTREAM_POSTGRES")
	flags.StringVar(&s.agentstream, "agentstream", "", "the product's binary")
	flags.StringVar(&s.natsServer, "nats-server", "", "nats-server binary, for split")
	flags.StringVar(&s.state, "state", "", "empty folder for the state")
	flags.StringVar(&s.logs, "logs", "", "prefix of the files that the processes' output goes to")
	flags.IntVar(&s.ports.first, "port", 18080, "first of four ports")
	flags.BoolVar(&s.openNATS, "nats", false, "dev: open the embedded NATS to other processes")
	flags.BoolVar(&s.ingest, "ingest", false, "take events over plain NATS")
	flags.BoolVar(&s.sync, "sync", false, "write the log to the disk before it acknowledges")
	flags.BoolVar(&s.gentle, "gentle", false, "let the processes end in order, which takes some seconds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer s.stop()
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.watch(ctx)
}

// start brings the shape up. The edge comes last: when it is ready, so is the rest.
func (s *server) start(ctx context.Context) error {
	var err error
	switch s.shape {
	case shapeDev:
		err = s.dev()
	case shapeSplit:
		err = s.split(ctx)
	case shapeFloor:
		err = s.floor()
	default:
		err = fmt.Errorf("no shape %q", s.shape)
	}
	if err != nil {
		return err
	}
	pids := map[string]int{}
	for _, c := range s.children {
		pids[c.Name()] = c.PID()
	}
	b, err := json.Marshal(pids)
	if err != nil {
		return err
	}
	file := filepath.Join(s.state, pidsFile)
	if err := os.WriteFile(file+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (s *server) dev() error {
	args := []string{"dev", "--no-demo", "--data", filepath.Join(s.state, "data"), "--listen", s.ports.edge(),
		"--admin-listen", s.ports.admin(), "--level", "warn"}
	if s.openNATS {
		args = append(args, "--nats-listen", s.ports.nats())
	}
	if s.sync {
		args = append(args, "--sync", "always")
	}
	return s.run("agentstream", s.agentstream, s.withIngest(args)...)
}

func (s *server) floor() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return s.run(shapeFloor, self, shapeFloor, s.ports.edge(), s.state)
}

func (s *server) split(ctx context.Context) error {
	if os.Getenv("AGENTSTREAM_POSTGRES") == "" {
		return errors.New("split needs AGENTSTREAM_POSTGRES")
	}
	conf := filepath.Join(s.state, "nats.conf")
	sync := ""
	if s.sync {
		sync = ", sync_interval: always"
	}
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q%s }\n", s.ports.nats(), filepath.Join(s.state, "js"), sync)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	if err := s.run("nats", s.natsServer, "-c", conf); err != nil {
		return err
	}
	if err := await(ctx, s.ports.nats(), s.children[0].Done()); err != nil {
		return err
	}
	nats := "nats://" + s.ports.nats()
	if out, err := exec.CommandContext(ctx, s.agentstream, "migrate", "--nats", nats, "--level",
		"warn").CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	if err := s.run("persist", s.agentstream, "persist", "--nats", nats, "--admin-listen", s.ports.persistAdmin(),
		"--level", "warn"); err != nil {
		return err
	}
	return s.run("edge", s.agentstream, s.withIngest([]string{"edge", "--insecure-no-auth", "--nats", nats, "--listen",
		s.ports.edge(),
		"--admin-listen", s.ports.admin(), "--level", "warn"})...)
}

func (s *server) withIngest(args []string) []string {
	if s.ingest {
		args = append(args, "--nats-ingest")
	}
	return args
}

func (s *server) run(name, binary string, args ...string) error {
	c, err := startChild(name, s.logs+name+".log", exec.Command(binary, args...))
	if err == nil {
		s.children = append(s.children, c)
	}
	return err
}

// startChild starts a process whose output goes to a file.
func startChild(name, log string, cmd *exec.Cmd) (*child.Child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close() // the process has a descriptor of its own
	return child.Start(name, out, cmd)
}

// watch looks whether the harness is still the parent: nothing else shows that it was killed.
func (s *server) watch(ctx context.Context) error {
	parent := os.Getppid()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if os.Getppid() != parent {
				return errors.New("the harness is gone")
			}
			for _, c := range s.children {
				select {
				case <-c.Done():
					return fmt.Errorf("%s ended by itself: %w", c.Name(), c.Err())
				default:
				}
			}
		}
	}
}

// stop ends everything at once, unless it is to be gentle: the harness waits for a third of a second, and the state is
// not kept.
func (s *server) stop() {
	for i := len(s.children) - 1; i >= 0; i-- {
		if c := s.children[i]; s.gentle {
			_ = c.Stop(os.Interrupt, 15*time.Second) // it is over in any case
		} else {
			c.Kill()
		}
	}
	for _, c := range s.children {
		<-c.Done()
	}
}

// await returns when something listens at the address.
func await(ctx context.Context, addr string, ended <-chan struct{}) error {
	return retryUntil(ctx, addr, ended, func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// awaitReady returns when an edge says that it is ready. It listens before that, so that nobody else takes its port.
func awaitReady(ctx context.Context, addr string, ended <-chan struct{}) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return retryUntil(ctx, addr, ended, func() error {
		resp, err := client.Get("http://" + addr + "/readyz")
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// retryUntil repeats what is asked of an address until it goes well, for 20 seconds.
func retryUntil(ctx context.Context, addr string, ended <-chan struct{}, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("no answer at %s: the process has ended", addr)
		case <-ctx.Done():
			return fmt.Errorf("no answer at %s: %w", addr, err)
		}
	}
}
