package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/backoff"
)

// defaultServer is --server unless it is given, and defaultListen where it listens.
const (
	defaultServer = "http://" + defaultListen
	defaultListen = "127.0.0.1:8080"
)

// recordServer is the server that takes what a command records.
type recordServer struct {
	own  bool // it is of this process
	stop func()
}

// findServer finds the server: that which is named, that which has the folder, that at the usual address; or it starts
// the parts of dev on the folder. It sets --server, --token and --data.
func (c *RecordCmd) findServer(ctx context.Context, s *settings, log *slog.Logger) (*recordServer, error) {
	there := &recordServer{stop: func() {}}
	if c.Server != defaultServer {
		return there, c.ask(ctx)
	}
	usual := c.Data == ""
	if usual {
		c.Data = "data"
	}
	for try := 0; ; try++ {
		held, err := c.askFolder(ctx)
		if err == nil && held {
			return there, nil
		}
		if err == nil && usual && c.isServed(ctx) {
			c.Data = ""
			return there, c.ask(ctx)
		}
		if err == nil {
			var own *recordServer
			own, err = c.startServer(ctx, s, defaultListen, log)
			if err == nil || !errors.Is(err, errLocked) {
				return own, err
			}
		}
		if try == folderTries {
			return nil, err
		}
		if err := backoff.Sleep(ctx, folderPause); err != nil {
			return nil, err
		}
	}
}

// How often, and after what time, a folder is looked at again that a process has which does not answer yet.
const (
	folderTries = 50
	folderPause = 100 * time.Millisecond
)

// askFolder finds the process that has the folder, and sets --server and --token to it; held is false when none has it.
func (c *RecordCmd) askFolder(ctx context.Context) (held bool, err error) {
	if _, err := os.Stat(c.Data); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	own, err := ownFolder(c.Data)
	if err == nil {
		return false, own.Close()
	}
	text, rerr := os.ReadFile(filepath.Join(c.Data, addressFile))
	if rerr != nil {
		return true, fmt.Errorf("--data: %w", err)
	}
	before := c.ServerFlags
	c.useAddress(strings.TrimSpace(string(text)))
	c.useToken(tokenOfFolder(c.Data))
	if err := c.ask(ctx); err != nil {
		c.ServerFlags = before
		return true, err
	}
	return true, nil
}

// replaceServer starts a server in the place of one of another record command, which has ended. The events that wait go
// there.
func (c *RecordCmd) replaceServer(ctx context.Context, s *settings, old *recordServer, log *slog.Logger) *recordServer {
	if old.own || c.Data == "" || c.isServed(ctx) {
		return old
	}
	_, listen, _ := strings.Cut(c.Server, "://")
	own, err := c.startServer(ctx, s, listen, log)
	if err != nil {
		log.Error("record: the server has gone", "err", err)
		return old
	}
	return own
}

// useToken sets the token unless the caller has.
func (c *RecordCmd) useToken(token string) {
	if c.Token == "" && c.TokenFile == "" {
		c.Token = token
	}
}

// ask asks the server whether it takes what is recorded.
func (c *RecordCmd) ask(ctx context.Context) error {
	client, err := cli.NewClient(c.ServerFlags, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Runs(ctx, agentstream.RunsQuery{Limit: 1})
	return err
}

// isServed reports whether a server of ours is at the address, whatever it thinks of the token.
func (c *RecordCmd) isServed(ctx context.Context) bool {
	f := c.ServerFlags
	f.Wait = false
	client, err := cli.NewClient(f, nil)
	if err != nil {
		return false
	}
	defer client.Close()
	_, err = client.Runs(ctx, agentstream.RunsQuery{Limit: 1})
	return err == nil || errors.Is(err, agentstream.ErrUnauthorized)
}

// useAddress asks the server of the folder, whose certificate may be of the folder's authority.
func (c *RecordCmd) useAddress(at string) {
	c.Server = at
	own := localCA{filepath.Join(c.Data, tlsFolder)}.path(caFile)
	if _, err := os.Stat(own); err == nil && c.CA == "" && strings.HasPrefix(at, "https://") {
		c.CA = own
	}
}

func tokenOfFolder(folder string) string {
	text, err := os.ReadFile(filepath.Join(folder, "token"))
	if err != nil {
		return "" // then the server asks for none, or for one that the caller has
	}
	return strings.TrimSpace(string(text))
}

// startServer runs the parts of dev on the folder, with the settings that dev has, until stop is called. They listen at
// another port where listen is taken.
func (c *RecordCmd) startServer(ctx context.Context, s *settings, listen string, log *slog.Logger) (*recordServer,
	error) {
	if ln, err := net.Listen("tcp", listen); err == nil {
		_ = ln.Close()
	} else {
		listen = "127.0.0.1:0"
	}
	var app CLI
	parser, err := newParser(&app, s)
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse([]string{"dev", "--no-demo", "--admin-listen", "off", "--listen", listen, "--data",
		c.Data}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served, ended := make(chan net.Addr, 1), make(chan error, 1)
	app.Dev.Serving = func(at net.Addr) error {
		served <- at
		return nil
	}
	go func() { ended <- app.Dev.Run(ctx, log) }()
	select {
	case at := <-served:
		c.useAddress(addressHere(at, app.Dev.TLS.IsSet()))
	case err := <-ended:
		cancel()
		return nil, err
	}
	c.useToken(app.Dev.AuthToken)
	return &recordServer{own: true, stop: func() {
		cancel()
		if err := <-ended; err != nil {
			log.Error("record: server", "err", err)
		}
	}}, nil
}
