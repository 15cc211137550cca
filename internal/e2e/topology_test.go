package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"
	"github.com/oasdiff/yaml"

	"agentstream/internal/testkit"
)

// topologyProc is services, started from nothing by tools/topology.
type topologyProc struct {
	t       *testing.T
	dir     string
	secrets string
	cmd     *exec.Cmd
	stderr  *lockedBuffer
	out     *bufio.Reader
	of      map[string]topologyService
}

type topologyService struct {
	Service   string
	PID       int
	Argv, Env []string
	Ports     map[string]int
	Workload  string
}

// topologyBinary builds the program once per test process.
var topologyBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "topology")
	out, err := exec.Command("go", "build", "-o", path, "agentstream/tools/topology").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// startTopology returns when every service of docker-compose.yml is there and healthy.
func startTopology(t *testing.T, args ...string) *topologyProc {
	t.Helper()
	p := newTopology(t)
	p.launch(append([]string{"-file", "../../docker-compose.yml"}, args...)...)
	return p
}

// newTopology makes the folder and the secrets of a topology.
func newTopology(t *testing.T) *topologyProc {
	t.Helper()
	p := &topologyProc{t: t, stderr: &lockedBuffer{}, of: map[string]topologyService{}}
	var err error
	if p.dir, err = os.MkdirTemp("", "agentstream-topology-"); err != nil { // PostgreSQL's user must get into it
		t.Fatal(err)
	}
	if err := os.Chmod(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.secrets = filepath.Join(p.dir, "secrets")
	if out, err := exec.Command("../../tools/secrets", p.secrets).CombinedOutput(); err != nil {
		t.Fatalf("tools/secrets: %v\n%s", err, out)
	}
	return p
}

// launch starts the program and returns when it says that everything is there.
func (p *topologyProc) launch(args ...string) {
	t := p.t
	t.Helper()
	path, err := topologyBinary()
	if err != nil {
		t.Fatal(err)
	}
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = command(path, append([]string{"-dir", filepath.Join(p.dir, "run"), "-agentstream", program}, args...)...)
	p.cmd.Env = append(os.Environ(), "SECRETS="+p.secrets)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	p.out = bufio.NewReader(out)
	var all []topologyService
	line, err := p.out.ReadString('\n')
	if err != nil || json.Unmarshal([]byte(line), &all) != nil {
		t.Fatalf("the topology does not start: %v\n%s", err, p.stderr)
	}
	for _, s := range all {
		p.of[s.Service] = s
	}
}

// stop ends everything in order.
func (p *topologyProc) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("topology: %v\n%s", err, p.stderr)
	}
	p.cmd = nil
	if err := os.RemoveAll(p.dir); err != nil {
		p.t.Error(err)
	}
}

func (p *topologyProc) secret(name string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.secrets, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (p *topologyProc) addr(service, port string) string {
	return "127.0.0.1:" + strconv.Itoa(p.of[service].Ports[port])
}

// ask sends a request with the clients' token, and returns what comes.
func (p *topologyProc) ask(method, addr, path, body string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.secret("auth_token"))
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestTopology: what docker-compose.yml describes starts from nothing, as often as it is tried: what is published
// through one edge is read through the other and through the proxy and is stored, health checks pass, and no service
// gets in by another's password. AGENTSTREAM_TOPOLOGY is how often.
func TestTopology(t *testing.T) {
	beside(t)
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("AGENTSTREAM_TOPOLOGY")); err == nil {
		rounds = n
	}
	var without []string
	edges := []string{"edge-1", "edge-2", "balancer"}
	if _, err := exec.LookPath("nginx"); err != nil {
		if _, err := os.Stat("/usr/sbin/nginx"); err != nil {
			t.Log("NOT TESTED: the proxy: there is no nginx")
			without, edges = []string{"-without", "balancer"}, edges[:2]
		}
	}
	for round := range rounds {
		begun := time.Now()
		p := startTopology(t, without...)
		t.Logf("round %d: everything is healthy after %s", round, time.Since(begun).Round(time.Millisecond))
		for i, edge := range edges {
			body := fmt.Sprintf("{\"type\":\"message.start\",\"payload\":{\"message_id\":\"m%d\",\"role\":\"assistant\"}}\n{\"type\":\"run.lifecycle\",\"payload\":{\"state\":\"done\"}}\n", i)
			path := fmt.Sprintf("/v1/agent/runs/through-%d/", i)
			if status, said := p.ask(http.MethodPost, p.addr(edge, "8080"), path+"events", body); status != http.StatusOK {
				t.Fatalf("round %d: %s: %d %s", round, edge, status, said)
			}
			other := edges[(i+1)%len(edges)]
			if status, said := p.ask(http.MethodGet, p.addr(other, "8080"), path+"stream?detail=full",
				""); status != http.StatusOK || !strings.Contains(said, "id: 2\n") {
				t.Errorf("round %d: what %s took, %s gives as %d %s", round, edge, other, status, said)
			}
		}
		eventually(t, 30*time.Second, "runs are stored", func() bool {
			status, said := p.ask(http.MethodGet, p.addr("edge-2", "8080"), "/v1/agent/runs", "")
			return status == http.StatusOK && strings.Count(said, `"run_id":`) == len(edges)
		})
		p.healthchecks()
		if round == 0 {
			p.locked()
			p.sameAsFile(without != nil)
		}
		p.stop()
	}
}

// healthchecks asks each process of the product as its container would, and an address where nobody is.
func (p *topologyProc) healthchecks() {
	p.t.Helper()
	program, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, service := range []string{"edge-1", "edge-2", "persist"} {
		cmd := command(program, "healthcheck")
		cmd.Env = p.of[service].Env
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Errorf("health check of %s: %v\n%s", service, err, out)
		}
	}
	out, err := command(program, "healthcheck", "--admin-listen", testkit.FreeAddr(p.t)).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "connection refused") {
		p.t.Errorf("health check of nobody: %v\n%s", err, out)
	}
}

// locked tries what an edge has at the doors of others.
func (p *topologyProc) locked() {
	p.t.Helper()
	word := func(name string) string { s := p.secret(name); return s[strings.LastIndexByte(s, ':')+1:] }
	words := map[string]string{"postgres": word("postgres_admin"), "agentstream": word("postgres_owner"),
		"agentstream_reader": word("postgres_reader")}
	for role := range words {
		for of, password := range words {
			dsn := fmt.Sprintf("postgres://%s:%s@%s/agentstream?sslmode=disable", role, password, p.addr("postgres", "5432"))
			db, err := pgx.Connect(p.t.Context(), dsn)
			if err == nil {
				_ = db.Close(context.WithoutCancel(p.t.Context()))
			}
			var pe *pgconn.PgError
			if own := role == of; own && err != nil || !own && (!errors.As(err, &pe) || pe.Code != "28P01") {
				p.t.Errorf("PostgreSQL takes %s's password for %s: %v", of, role, err)
			}
		}
	}
	for i := range 3 {
		nc, err := nats.Connect("nats://" + p.addr(fmt.Sprint("nats-", i+1), "4222"))
		if !errors.Is(err, nats.ErrAuthorization) {
			p.t.Errorf("NATS without a password: %v", err)
		}
		if err == nil {
			nc.Close()
		}
	}
}

// composed is what the test reads of docker-compose.yml, by itself.
type composed struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Secrets     []string
		Configs     []struct{ Source, Target string }
	}
	Configs map[string]struct{ Content string }
}

var anyAddress = regexp.MustCompile(`(nats-\d|postgres|edge-\d|0\.0\.0\.0|127\.0\.0\.1):\d+`)

// plain takes out of a text what a container has of its own: addresses, and where its paths are here.
func (p *topologyProc) plain(service, text string) string {
	run := filepath.Join(p.dir, "run")
	text = strings.ReplaceAll(text, filepath.Join(run, "roots", service), "")
	text = regexp.MustCompile(regexp.QuoteMeta(run)+`/volumes/(blobs|nats-\d)`).ReplaceAllString(text, "/data")
	text = regexp.MustCompile(`(?m)^\s*http2 on;.*\n|^\s*;?\s*#.*\n|listen (127\.0\.0\.1:)?\d+;`).ReplaceAllString(text,
		"")
	return anyAddress.ReplaceAllString(text, "ADDRESS")
}

// sameAsFile holds every process to its service: arguments, environment, secrets and configurations.
func (p *topologyProc) sameAsFile(proxyless bool) {
	t := p.t
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file composed
	if _, err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "$$", "$")), &file,
		yaml.DecodeOpts{}); err != nil {
		t.Fatal(err)
	}
	if proxyless {
		delete(file.Services, "balancer")
	}
	if len(file.Services) != len(p.of) || len(p.of) < 8 {
		t.Errorf("%d services, %d processes", len(file.Services), len(p.of))
	}
	for name, s := range file.Services {
		is := p.of[name]
		argv, env := is.Argv, is.Env
		if name != "migrate" && name != "balancer" { // one has ended, the other writes its name over them
			argv, env = procWords(t, is.PID, "cmdline"), procWords(t, is.PID, "environ")
		}
		var got, want []string
		for _, v := range env {
			if !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, "TMPDIR=") && !strings.HasPrefix(v, "PG") &&
				!strings.HasPrefix(v, "LC_ALL=") {
				got = append(got, p.plain(name, v))
			}
		}
		for k, v := range s.Environment {
			want = append(want, p.plain(name, k+"="+v))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: environment\n%q\nwant\n%q", name, got, want)
		}
		if len(s.Command) > 0 {
			if n := len(argv) - len(s.Command); n < 1 ||
				p.plain(name, strings.Join(argv[n:], "\n")) != p.plain(name, strings.Join(s.Command, "\n")) {
				t.Errorf("%s: arguments %q, want %q", name, argv, s.Command)
			}
		}
		root := filepath.Join(p.dir, "run", "roots", name)
		var secrets []string
		found, _ := filepath.Glob(root + "/run/secrets/*")
		for _, path := range found {
			secrets = append(secrets, filepath.Base(path))
		}
		slices.Sort(s.Secrets)
		if !slices.Equal(secrets, s.Secrets) {
			t.Errorf("%s: secrets %q, want %q", name, secrets, s.Secrets)
		}
		for _, c := range s.Configs {
			has, err := os.ReadFile(filepath.Join(root, c.Target))
			if got, want := p.plain(name, string(has)), p.plain(name, file.Configs[c.Source].Content); err != nil ||
				got != want || len(want) < 100 {
				t.Errorf("%s: %s, %v\n%s\nwant\n%s", name, c.Target, err, got, want)
			}
		}
	}
}

// procWords reads a list that the kernel has of a process.
func procWords(t *testing.T, pid int, of string) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, of))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
