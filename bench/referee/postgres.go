package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"agentstream/bench/child"
	"agentstream/internal/localpg"
)

// postgresPrograms are what is used of an installation.
var postgresPrograms = []string{"postgres", "pg_isready", "createdb", "dropdb"}

// postgres is a PostgreSQL with the settings it comes with, in a temporary folder, reached by a Unix
// socket there. It is not part of a measured tree.
type postgres struct {
	dir, bin string
	cred     *syscall.Credential // nil: run as ourselves
	proc     *child.Child
}

func startPostgres(ctx context.Context, logs string) (*postgres, error) {
	bin, err := localpg.Programs(postgresPrograms...)
	if err != nil {
		return nil, err
	}
	p := &postgres{bin: bin}
	if p.cred, err = localpg.User(); err != nil {
		return nil, err
	}
	// A socket's path may have 107 bytes, so the folder does not lie among the results.
	if p.dir, err = os.MkdirTemp("", "agentstream-pg-"); err != nil {
		return nil, err
	}
	if p.cred != nil {
		err = os.Chown(p.dir, int(p.cred.Uid), int(p.cred.Gid))
	}
	if err == nil {
		err = p.start(ctx, logs)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), p.stop())
	}
	return p, nil
}

func (p *postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred}
	return cmd
}

func (p *postgres) start(ctx context.Context, logs string) error {
	data := filepath.Join(p.dir, "data")
	out, err := p.command(ctx, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync", "--no-instructions").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	server := p.command(context.WithoutCancel(ctx), "postgres", "-D", data, "-k", p.dir, "-h", "", "-p", "5432")
	if p.proc, err = startChild("postgres", logs, server); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.command(ctx, "pg_isready", "-q", "-h", p.dir).Run() == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.proc.Done():
			return fmt.Errorf("it ended: %w", p.proc.Err())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// database makes an empty database anew and returns its DSN.
func (p *postgres) database(ctx context.Context, name string) (string, error) {
	for _, cmd := range []*exec.Cmd{
		p.command(ctx, "dropdb", "-h", p.dir, "-U", "postgres", "--if-exists", "--force", name),
		p.command(ctx, "createdb", "-h", p.dir, "-U", "postgres", name),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("make database %s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
	}
	return "postgres://postgres@/" + name + "?" + url.Values{"host": {p.dir}, "port": {"5432"}}.Encode(), nil
}

// stop ends the server without a checkpoint and removes its folder.
func (p *postgres) stop() error {
	var err error
	if p.proc != nil {
		err = p.proc.Stop(syscall.SIGQUIT, 20*time.Second)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
