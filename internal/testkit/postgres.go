package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"agentstream/internal/localpg"
)

// PostgresServer is a private PostgreSQL in a temporary directory, reached by a Unix socket there.
// It does not sync to disk: its data survives Stop, not a power cut. The kernel stops it when the
// test process dies, however it dies.
type PostgresServer struct {
	dir  string
	bin  string
	cred *syscall.Credential // nil: run as ourselves
	set  []string            // settings beside those of Start, "name=value"
	next atomic.Int64

	making sync.Mutex
	models map[string]string // the DSNs of the databases that PostgresCopy copies, by name

	mu   sync.Mutex
	proc *process
}

// shared is the server of this test process; Main stops it.
var shared struct {
	sync.Mutex
	server *PostgresServer
	err    error
}

// Postgres returns the DSN of a fresh, empty database on the one server that all tests of this process
// share. The package's TestMain must end with Main. Without PostgreSQL on the machine the test fails
// where CI is set, and is skipped elsewhere. It is skipped with -short, too.
func Postgres(t testing.TB) string {
	t.Helper()
	return commonServer(t).Database(t)
}

// PostgresCopy is Postgres with a copy of what prepare makes of an empty database. Prepare runs once for a name in a
// test process. It leaves no connection to the database.
func PostgresCopy(t testing.TB, name string, prepare func(ctx context.Context, dsn string) error) string {
	t.Helper()
	s := commonServer(t)
	config, err := pgx.ParseConfig(s.modelDatabase(t, name, prepare))
	if err != nil {
		t.Fatal(err)
	}
	return s.create(t, " template "+config.Database)
}

// CopyDatabase returns the DSN of a copy of a database of the shared server, as it is at this moment. Nobody may be
// connected to it.
func CopyDatabase(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return commonServer(t).create(t, " template "+config.Database)
}

// GiveToOwner makes a role the owner of a database of the shared server, and returns the DSN of the database for that
// role. It is one role for all of them, without rights beyond them: row security holds it, and what it has made is its
// own in a copy, too.
func GiveToOwner(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	commonServer(t).exec(t, "do $$ begin create role "+owner+" login; "+
		"exception when duplicate_object or unique_violation then null; end $$",
		"alter database "+config.Database+" owner to "+owner)
	return strings.Replace(dsn, "//postgres@", "//"+owner+"@", 1)
}

// owner is the role of GiveToOwner.
const owner = "owner_of_databases"

// modelDatabase returns the DSN of the database that the copies of that name are made of.
func (s *PostgresServer) modelDatabase(t testing.TB, name string,
	prepare func(ctx context.Context, dsn string) error) string {
	t.Helper()
	s.making.Lock()
	defer s.making.Unlock()
	if s.models[name] == "" {
		dsn := s.Database(t)
		if err := prepare(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
		if s.models == nil {
			s.models = make(map[string]string)
		}
		s.models[name] = dsn
	}
	return s.models[name]
}

// commonServer returns the server that all tests of a process share.
func commonServer(t testing.TB) *PostgresServer {
	t.Helper()
	skipShort(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = newPostgres()
	}
	missing(t, shared.err)
	return shared.server
}

// StartPostgres starts a server of the test's own, for tests that stop it. It ends with the test.
// Settings ("name=value") win over those that tests are run with. The test is skipped with -short.
func StartPostgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	skipShort(t)
	s, err := newPostgres(settings...)
	missing(t, err)
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Main runs the package's tests, stops the shared PostgreSQL, looks for leaked goroutines, and
// exits. Use it as the whole of TestMain.
func Main(m *testing.M, leaks ...goleak.Option) { os.Exit(Run(m, leaks...)) }

// Run is Main without the exit, for packages that have something of their own to put away.
func Run(m *testing.M, leaks ...goleak.Option) int {
	code := m.Run()
	shared.Lock()
	server := shared.server
	shared.Unlock()
	if server != nil {
		if err := server.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := goleak.Find(leaks...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

func missing(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, localpg.ErrNone) && os.Getenv("CI") == "" {
		t.Skip("SKIPPED, NOTHING WAS TESTED: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newPostgres(settings ...string) (*PostgresServer, error) {
	bin, err := localpg.Programs()
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{bin: bin, set: settings}
	if s.cred, err = localpg.User(); err != nil {
		return nil, err
	}
	// Not t.TempDir: its parents belong to us alone, and a socket's path may have 107 bytes.
	if s.dir, err = os.MkdirTemp("", "agentstream-pg-"); err != nil {
		return nil, fmt.Errorf("testkit: start postgres: %w", err)
	}
	if s.cred != nil {
		err = os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid))
	}
	if err == nil {
		err = s.initdb()
	}
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

func (s *PostgresServer) initdb() error {
	cmd := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync",
		"--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testkit: initdb: %w: %s", err, out)
	}
	return nil
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

func (s *PostgresServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	// The kernel sends the signal when the thread that started the process ends: see startProcess.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// Start starts the server, or starts it again after Stop, and returns when it answers.
func (s *PostgresServer) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return errors.New("testkit: start postgres: it runs")
	}
	args := []string{"-D", s.data(), "-k", s.dir, "-h", "", "-p", "5432",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=400", "-c", "log_min_messages=warning",
		"-c", "shared_buffers=128MB", "-c", "max_wal_size=4GB"}
	for _, setting := range s.set {
		args = append(args, "-c", setting)
	}
	p, err := startProcess(s.command("postgres", args...))
	if err == nil {
		s.proc = p
		err = p.await(func(ctx context.Context) error {
			conn, err := pgx.Connect(ctx, s.dsn("postgres"))
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		})
	}
	if err != nil {
		if p.over() {
			s.proc = nil
		}
		return fmt.Errorf("testkit: start postgres: %w", err)
	}
	return nil
}

// Stop ends the server at once, as a crash would: connections are cut, transactions are lost. It
// returns when the process is gone. Stopping a server that is stopped does nothing.
func (s *PostgresServer) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("testkit: stop postgres: %w", err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("testkit: stop postgres: it did not end within 20 s and was killed")
	}
}

// Kill ends the server's first process with SIGKILL, which lets it tell nobody: those that serve
// connections find out by themselves. It returns when they are gone too, before which the server
// cannot be started again. Killing a server that is stopped does nothing.
func (s *PostgresServer) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	rest := childrenOf(p.cmd.Process.Pid)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("testkit: kill postgres: %w", err)
	}
	<-p.done
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	patience, limit := time.Now().Add(3*time.Second), time.Now().Add(20*time.Second)
	for ; len(rest) > 0; <-tick.C {
		rest = slices.DeleteFunc(rest, func(pid int) bool { return !alive(pid) })
		if time.Now().After(limit) {
			return fmt.Errorf("testkit: kill postgres: processes %v do not end", rest)
		}
		if time.Now().After(patience) { // one that waits for a client's data does not look
			for _, pid := range rest {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	return nil
}

// Pause lets no process of the server run until Resume: connections stay, are even taken, and nothing
// answers. Processes that begin meanwhile are not there: who would start them is paused too.
func (s *PostgresServer) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *PostgresServer) Resume() error { return s.signal(syscall.SIGCONT) }

// signal goes to the first process and then to those below it.
func (s *PostgresServer) signal(sig syscall.Signal) error {
	first := s.PID()
	if first == 0 {
		return errors.New("testkit: signal postgres: it is stopped")
	}
	for _, pid := range append([]int{first}, childrenOf(first)...) {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("testkit: signal postgres: %w", err)
		}
	}
	return nil
}

// PID is the server's first process, the parent of those that serve connections; 0 when it is stopped.
func (s *PostgresServer) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// childrenOf lists the processes below one; empty where there is no proc(5).
func childrenOf(pid int) (list []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		text, _ := os.ReadFile(file) // a thread that is gone
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// alive is false for a process that has ended and that nobody has waited for.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// remove stops the server and deletes its directory.
func (s *PostgresServer) remove() error { return errors.Join(s.Stop(), os.RemoveAll(s.dir)) }

// Socket is the directory of the server's Unix socket, .s.PGSQL.5432.
func (s *PostgresServer) Socket() string { return s.dir }

// Database makes a fresh, empty database and returns its DSN.
func (s *PostgresServer) Database(t testing.TB) string {
	t.Helper()
	return s.create(t, "")
}

func (s *PostgresServer) create(t testing.TB, how string) string {
	t.Helper()
	name := "test_" + strconv.FormatInt(s.next.Add(1), 10)
	s.exec(t, "create database "+name+how)
	return s.dsn(name)
}

// exec executes statements as the superuser, in no database of a test.
func (s *PostgresServer) exec(t testing.TB, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, text := range statements {
		if _, err := conn.Exec(ctx, text); err != nil {
			t.Fatalf("testkit: %s: %v", text, err)
		}
	}
}

// dsn has the form of a URL, as operators write it.
func (s *PostgresServer) dsn(database string) string {
	return "postgres://postgres@/" + database + "?host=" + strings.ReplaceAll(s.dir, " ", "%20") + "&port=5432"
}
