package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"agentstream/internal/localpg"
)

// service starts a service as its image does.
func (t *topology) service(ctx context.Context, name string, s service) (*process, error) {
	p, err := t.makePlace(name, s)
	if err != nil {
		return nil, err
	}
	args, err := p.all(s.Command)
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	for _, key := range keysInOrder(s.Environment) {
		value, err := p.mapText(s.Environment[key])
		if err != nil {
			return nil, err
		}
		env = append(env, key+"="+value)
	}
	var cmd *exec.Cmd
	switch s.kind() {
	case "agentstream":
		cmd = exec.Command(t.binary, args...)
	case "nats":
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd = exec.Command(self, append([]string{natsServer}, args...)...)
	case "nginx":
		cmd, err = p.nginx(s)
	case "postgres":
		cmd, err = p.postgres(ctx, s, env)
	default:
		err = fmt.Errorf("nothing here stands for the image %q", s.Image)
	}
	if err != nil {
		return nil, err
	}
	cmd.Env, cmd.Dir = env, p.root
	return t.launch(name, cmd)
}

// nginx is what the image runs. Debian's may be older than http2 as a directive: gRPC is left out then.
func (p *place) nginx(s service) (*exec.Cmd, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: install it, or leave the service out (-without)", err)
	}
	conf := filepath.Join(p.root, s.Configs[0].Target)
	test := func() ([]byte, error) {
		return exec.Command(program, "-t", "-q", "-e", "stderr", "-p", p.root, "-c", conf, "-g", p.globals()).CombinedOutput()
	}
	out, err := test()
	if err != nil && strings.Contains(string(out), `unknown directive "http2"`) {
		text, rerr := os.ReadFile(conf)
		if rerr != nil {
			return nil, rerr
		}
		if err := os.WriteFile(conf, []byte(strings.Replace(string(text), "http2 on;", "", 1)), 0o644); err != nil {
			return nil, err
		}
		fmt.Fprintln(os.Stderr, "topology: nginx is older than 1.25.1: without HTTP/2, and so without gRPC")
		out, err = test()
	}
	if err != nil {
		return nil, fmt.Errorf("nginx: %w: %s", err, out)
	}
	return exec.Command(program, "-e", "stderr", "-p", p.root, "-c", conf, "-g", p.globals()), nil
}

func (p *place) globals() string {
	return "daemon off; pid " + filepath.Join(p.root, "nginx.pid") + ";"
}

// postgres does what the image's entry point does on a fresh volume: a cluster, a server at a socket alone while the
// database is made and the scripts run, then the one that is to stay.
func (p *place) postgres(ctx context.Context, s service, env []string) (*exec.Cmd, error) {
	data, err := p.mapText("/var/lib/postgresql/data")
	if err != nil {
		return nil, err
	}
	port, err := p.t.port(p.name, "5432")
	if err != nil {
		return nil, err
	}
	programs, err := localpg.Programs("postgres", "pg_ctl", "createdb")
	if err != nil {
		return nil, err
	}
	cred, err := localpg.User()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(p.root, "s")
	if err := os.MkdirAll(socket, 0o777); err != nil {
		return nil, err
	}
	if cred != nil {
		for _, dir := range []string{data, p.root} {
			if err := chown(dir, cred); err != nil {
				return nil, err
			}
		}
	}
	env = append(env, "PATH="+programs+":"+os.Getenv("PATH"), "PGHOST="+socket, "PGPORT="+strconv.Itoa(port), "LC_ALL=C")
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(programs, name), args...)
		cmd.Env, cmd.Dir = env, socket
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		return cmd
	}
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := p.prepare(ctx, s, command, data, socket, port); err != nil {
			return nil, err
		}
	}
	return command("postgres", "-D", data, "-k", socket, "-h", "127.0.0.1", "-p", strconv.Itoa(port)), nil
}

// prepare fills the volume. Meanwhile the health check must not pass: nothing answers at the port.
func (p *place) prepare(ctx context.Context, s service, command func(string, ...string) *exec.Cmd, data, socket string,
	port int) error {
	admin, err := p.mapText(s.Environment["POSTGRES_PASSWORD_FILE"])
	if err != nil {
		return err
	}
	run := func(cmd *exec.Cmd) error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, out)
		}
		return nil
	}
	user := s.Environment["POSTGRES_USER"]
	if err := run(command("initdb", "-D", data, "-U", user, "-A", "scram-sha-256", "--auth-local=trust",
		"--pwfile="+admin, "-E", "UTF8", "--locale=C")); err != nil {
		return err
	}
	if err := run(command("pg_ctl", "-D", data, "-w", "-l", filepath.Join(socket, "prepare.log"), "-o",
		fmt.Sprintf("-k %s -h '' -p %d", socket, port), "start")); err != nil {
		return err
	}
	err = run(command("createdb", "-U", user, s.Environment["POSTGRES_DB"]))
	if err == nil {
		p.t.running[p.name] = &process{cmd: command("postgres")} // for the environment of the check
		if p.t.check(ctx, p.name, s) == nil {
			err = errors.New("the health check passes while the volume is being prepared: others would come too early")
		}
		delete(p.t.running, p.name)
	}
	for _, c := range s.Configs {
		if strings.Contains(c.Target, "initdb.d") && err == nil {
			script := command("sh", filepath.Join(p.root, c.Target))
			script.Path, script.Err = "/bin/sh", nil
			err = run(script)
		}
	}
	return errors.Join(err, run(command("pg_ctl", "-D", data, "-m", "fast", "-w", "stop")))
}

// chown makes a user the owner of a folder and of all in it.
func chown(dir string, to *syscall.Credential) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(to.Uid), int(to.Gid))
	})
}
