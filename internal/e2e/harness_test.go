package e2e_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// binDir is where the program is built, for the life of the test process.
var binDir string

func TestMain(m *testing.M) {
	if dir := os.Getenv(natsChildEnv); dir != "" {
		fmt.Fprintln(os.Stderr, serveNATSChild(dir))
		os.Exit(1)
	}
	if url := os.Getenv(threadWorkerEnv); url != "" {
		fmt.Fprintln(os.Stderr, serveThreadWorker(url))
		os.Exit(1)
	}
	var err error
	if binDir, err = os.MkdirTemp("", "agentstream-e2e"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	http.DefaultTransport = withToken{http.DefaultTransport}
	flag.Parse()
	// Tests mostly wait for processes: six at a time, also on two cores.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue && runtime.GOMAXPROCS(0) < 6 {
		if err := f.Value.Set("6"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := testkit.Run(m)
	if err := os.RemoveAll(binDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// long reports whether this is a long form: it measures, and so its tests run one after the other and may judge time.
func long() bool {
	return slices.ContainsFunc([]string{"KILLS", "OUTAGE", "EVENTS", "METIS", "THREADS", "RUNTIME", "PROOFS", "DRILLS",
		"ATTACKS", "ROLLING"}, func(form string) bool {
		return os.Getenv("AGENTSTREAM_"+form) != ""
	})
}

// beside lets a test run beside the others: they mostly wait.
func beside(t *testing.T) {
	t.Helper()
	if !long() {
		t.Parallel()
	}
}

// binary builds the program once per test process.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "agentstream")
	out, err := exec.Command("go", "build", "-o", path, "agentstream/cmd/agentstream").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// edgeToken is what edges ask for: that role does not start without authentication. dev does.
const edgeToken = "e2e-token-of-the-edges"

// withToken shows the token where a request brings no credential of its own: the default client's
// requests work against every role.
type withToken struct{ http.RoundTripper }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+edgeToken)
	}
	return w.RoundTripper.RoundTrip(r)
}

// proc is one process of the product.
type proc struct {
	t     *testing.T
	args  []string
	env   []string
	addr  string // of clients; "" where there is none
	admin string
	cmd   *exec.Cmd
	log   *lockedBuffer
	done  chan struct{}
	// stopped takes the exit status where stop runs beside the test.
	stopped chan int
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > 1<<20 {
		l.b.Reset()
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newProc describes a role; start starts it. Server roles get addresses that stay over restarts, and
// edges a token (edgeToken).
func newProc(t *testing.T, role string, args ...string) *proc {
	t.Helper()
	p := &proc{t: t, admin: testkit.FreeAddr(t), log: &lockedBuffer{}, stopped: make(chan int, 1)}
	p.args = append([]string{role, "--admin-listen", p.admin}, args...)
	if !slices.Contains([]string{"persist", "worker", "tap"}, role) {
		p.addr = testkit.FreeAddr(t)
		p.args = append(p.args, "--listen", p.addr, "--drain", "100ms")
	}
	if role == "edge" {
		p.args = append(p.args, "--auth-token", edgeToken)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", role, tail(p.log.String(), 4000))
		}
	})
	return p
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func (p *proc) url(path string) string { return "http://" + p.addr + path }

// withoutFeeds is the environment of all processes: an audit feed would be a run beside those that a test has written and
// compares. Feeds have tests of their own, in edge/audit and in cmd/agentstream/internal/node.
var withoutFeeds = []string{"AGENTSTREAM_AUDIT=false"}

// start starts the process and returns when it says that it is ready.
func (p *proc) start() {
	p.t.Helper()
	path, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = command(path, p.args...)
	p.cmd.Env = slices.Concat(os.Environ(), withoutFeeds, p.env)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(p.cmd, p.done)
	eventually(p.t, 30*time.Second, p.args[0]+" ready", func() bool {
		select {
		case <-p.done:
			p.t.Fatalf("%s ended:\n%s", p.args[0], tail(p.log.String(), 4000))
		default:
		}
		r, err := http.Get("http://" + p.admin + "/readyz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// kill is SIGKILL: no handler runs, nothing is flushed.
func (p *proc) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
	p.cmd = nil
}

// stop is SIGTERM; it returns the exit status.
func (p *proc) stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.t.Errorf("%s does not end", p.args[0])
		return -1
	}
	code := p.cmd.ProcessState.ExitCode()
	p.cmd = nil
	return code
}

func eventually(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain: %s", limit, what)
		}
	}
}

// post sends one batch under a key until it is acknowledged; ok false when ctx ended first. retries
// counts the attempts whose outcome the client never learned.
func post(ctx context.Context, client *http.Client, url, key string, body []byte) (answer string, retries int,
	err error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return "", retries, err
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
		req.Header.Set("Idempotency-Key", key)
		resp, err := client.Do(req)
		if err == nil {
			text, rerr := io.ReadAll(resp.Body)
			resp.Body.Close()
			switch {
			case rerr == nil && resp.StatusCode == http.StatusOK:
				return string(text), retries, nil
			case rerr == nil && resp.StatusCode < 500:
				return "", retries, fmt.Errorf("status %d: %s", resp.StatusCode, text)
			}
		}
		retries++
		select {
		case <-ctx.Done():
			return "", retries, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// events reads a whole run by pages.
func events(t testing.TB, base string) (lines []string) {
	t.Helper()
	for after := 0; ; {
		page := getPage(t, fmt.Sprintf("%s/events?after=%d&limit=1000", base, after))
		lines = append(lines, page...)
		if len(page) == 0 {
			return lines
		}
		after += len(page)
	}
}

func getPage(t testing.TB, url string) []string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", url, resp.StatusCode, body, err)
	}
	return splitEvents(t, body)
}

// splitEvents takes the raw events out of a page without decoding them: byte for byte.
func splitEvents(t testing.TB, body []byte) (out []string) {
	t.Helper()
	s, ok := strings.CutPrefix(string(body), `{"events":[`)
	if !ok {
		t.Fatalf("page is %.200s", body)
	}
	depth, start, inString := 0, 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{':
			if depth == 0 {
				start = i
			}
			depth++
		case c == '}':
			if depth--; depth == 0 {
				out = append(out, s[start:i+1])
			}
		case c == ']' && depth == 0:
			return out
		}
	}
	t.Fatalf("page does not end: %.200s", body)
	return nil
}

// command is a process that is not left behind when the test itself is killed.
func command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
