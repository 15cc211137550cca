package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// natsChildEnv, in the environment, makes the test binary a NATS server: the folder of its store, and
// its port.
const natsChildEnv, natsPortEnv = "AGENTSTREAM_E2E_NATS", "AGENTSTREAM_E2E_NATS_PORT"

// serveNATSChild is the main function of that process. It ends by being killed.
func serveNATSChild(dir string) error {
	if text := os.Getenv(natsNodeEnv); text != "" {
		return serveNATSNode(dir, text)
	}
	port, err := strconv.Atoi(os.Getenv(natsPortEnv))
	if err != nil {
		return err
	}
	if _, err := natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: "127.0.0.1", Port: port,
		MaxStore: 64 << 30}); err != nil {
		return err
	}
	fmt.Println("serving")
	select {}
}

// natsProc is a NATS server in a process of its own, which can be killed and comes back on its store.
type natsProc struct {
	t    testing.TB
	dir  string
	port int
	*service
}

// startNATS starts one with its store in dir, and ends it with the test.
func startNATS(t testing.TB, dir string) *natsProc {
	t.Helper()
	n := &natsProc{t: t, dir: dir, port: testkit.FreePort(t)}
	n.service = newService(t, "nats", func() (string, []string, []string) {
		return os.Args[0], nil, []string{natsChildEnv + "=" + dir, natsPortEnv + "=" + strconv.Itoa(n.port)}
	})
	n.start()
	n.await()
	return n
}

func (n *natsProc) url() string { return "nats://127.0.0.1:" + strconv.Itoa(n.port) }

// await waits until the server takes connections.
func (n *natsProc) await() {
	n.t.Helper()
	eventually(n.t, 60*time.Second, "NATS takes connections", func() bool {
		nc, err := natskit.Dial(n.url(), "await")
		if err != nil {
			return false
		}
		defer nc.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		// The API answers when the store has been read again.
		m, err := nc.RequestWithContext(ctx, "$JS.API.INFO", nil)
		return err == nil && strings.Contains(string(m.Data), `"type":"io.nats.jetstream.api.v1.account_info_response"`)
	})
}

// service is a process that is kept alive: when it ends by itself, it is started again, as a service
// manager does. A role that starts while NATS is away ends, for example.
type service struct {
	name string
	line func() (path string, args, env []string)
	log  *lockedBuffer

	mu      sync.Mutex
	pid     int
	up      bool // it is to run
	kick    chan struct{}
	ended   chan struct{} // of the process that runs now
	revived atomic.Int64  // how often it ended by itself
	quit    context.CancelFunc
	all     sync.WaitGroup
}

func newService(t testing.TB, name string, line func() (string, []string, []string)) *service {
	s := &service{name: name, line: line, log: &lockedBuffer{}, kick: make(chan struct{}, 1)}
	var ctx context.Context
	ctx, s.quit = context.WithCancel(context.Background())
	s.all.Go(func() { s.keep(ctx) })
	t.Cleanup(func() {
		s.quit()
		s.kill()
		s.all.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", name, tail(s.log.String(), 4000))
		}
	})
	return s
}

// keep is the manager. It starts processes in one goroutine.
func (s *service) keep(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		up := s.up
		s.mu.Unlock()
		if !up {
			select {
			case <-s.kick:
			case <-ctx.Done():
			}
			continue
		}
		path, args, env := s.line()
		cmd := command(path, args...)
		cmd.Env = slices.Concat(os.Environ(), withoutFeeds, env)
		cmd.Stdout, cmd.Stderr = s.log, s.log
		s.mu.Lock()
		if !s.up || ctx.Err() != nil {
			s.mu.Unlock()
			continue
		}
		if err := cmd.Start(); err != nil {
			s.mu.Unlock()
			fmt.Fprintln(s.log, "start:", err)
			return
		}
		s.pid, s.ended = cmd.Process.Pid, make(chan struct{})
		ended := s.ended
		s.mu.Unlock()
		_ = cmd.Wait()
		s.mu.Lock()
		s.pid = 0
		alone := s.up
		s.mu.Unlock()
		close(ended)
		if alone && ctx.Err() == nil {
			s.revived.Add(1)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// start lets the process run; it returns at once.
func (s *service) start() {
	s.mu.Lock()
	s.up = true
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// kill is SIGKILL, and the process stays down until start. It says whether one was running.
func (s *service) kill() bool { return s.end(syscall.SIGKILL) }

// end is kill by another signal.
func (s *service) end(by syscall.Signal) bool {
	s.mu.Lock()
	s.up = false
	pid, ended := s.pid, s.ended
	if pid != 0 {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Signal(by)
		}
	}
	s.mu.Unlock()
	if pid == 0 {
		return false
	}
	<-ended
	return true
}

// process is the number of the process that runs, 0 for none.
func (s *service) process() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// role is a role of the product that is kept alive.
type role struct {
	*service
	admin, addr string
}

// newRole describes one on the given servers; start starts it. Other roles than persist take clients
// at addr, with edgeToken.
func newRole(t *testing.T, name, nats, dsn string, args ...string) *role {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	r := &role{admin: testkit.FreeAddr(t)}
	own := []string{name, "--nats", nats, "--admin-listen", r.admin}
	if name == "edge" {
		r.addr = testkit.FreeAddr(t)
		own = append(own, "--listen", r.addr, "--drain", "100ms", "--auth-token", edgeToken)
	}
	args = append(own, args...) // of two the last one counts
	r.service = newService(t, name, func() (string, []string, []string) {
		return path, args, []string{"AGENTSTREAM_POSTGRES=" + dsn}
	})
	return r
}

// ready returns what /readyz says and its status; 0 when nobody answers.
func (r *role) ready() (int, string) { return getText("http://" + r.admin + "/readyz") }

func (r *role) await(t testing.TB) {
	t.Helper()
	eventually(t, 60*time.Second, r.name+" ready", func() bool { status, _ := r.ready(); return status == http.StatusOK })
}

func getText(url string) (int, string) { return getTextWithin(10*time.Second, url) }

func getTextWithin(limit time.Duration, url string) (int, string) {
	client := http.Client{Timeout: limit}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, resp.Body); err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, b.String()
}

// scraped adds the values of a metric over its labels, and returns the largest. ok is false when it is
// not there.
func scraped(exposition, name string) (sum, most float64, ok bool) {
	for line := range strings.Lines(exposition) {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err == nil {
			sum, most, ok = sum+v, max(most, v), true
		}
	}
	return sum, most, ok
}

// rssMiB is the resident memory of a process; 0 for none.
func rssMiB(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	f := strings.Fields(string(b))
	if err != nil || len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(f[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// cpuSeconds is the CPU time of a process and of what it has waited for and, with below, of the
// processes that are under it now (proc(5): ticks of 10 ms).
func cpuSeconds(pid int, below bool) (sum float64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	text := string(b)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 15 {
		return 0
	}
	for _, v := range f[11:15] {
		n, _ := strconv.ParseFloat(v, 64)
		sum += n / 100
	}
	if below {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, file := range tasks {
			list, _ := os.ReadFile(file)
			for _, c := range strings.Fields(string(list)) {
				if child, err := strconv.Atoi(c); err == nil {
					sum += cpuSeconds(child, true)
				}
			}
		}
	}
	return sum
}

// durationEnv reads a duration from the environment.
func durationEnv(t testing.TB, name string, short time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return short
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q", name, s)
	}
	return d
}

// intEnv reads a whole number from the environment.
func intEnv(t testing.TB, name string, short int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return short
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q", name, s)
	}
	return n
}
