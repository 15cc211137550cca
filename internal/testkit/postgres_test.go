package testkit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestPostgresGivesFreshDatabases(t *testing.T) {
	a, b := testkit.Postgres(t), testkit.Postgres(t)
	if a == b {
		t.Fatalf("both databases are %s", a)
	}
	run(t, a, "create table only_here (n int)")
	if err := exec1(t.Context(), b, "select from only_here"); err == nil {
		t.Fatal("a table of one test's database is visible in another's")
	}
	if os.Geteuid() == 0 && as(t, a) == 0 {
		t.Fatal("the server runs as root")
	}
}

func TestPostgresKeepsDataOverStop(t *testing.T) {
	for name, end := range map[string]func(*testkit.PostgresServer) error{
		"stop": (*testkit.PostgresServer).Stop, "kill": (*testkit.PostgresServer).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.StartPostgres(t, "work_mem=5MB")
			dsn := s.Database(t)
			run(t, dsn, "create table kept (n int)", "insert into kept values (1)")
			run(t, dsn, "select 1/(current_setting('work_mem') = '5MB')::int")
			if s.PID() != postmasterPID(t, s) {
				t.Fatalf("process %d says that it is %d", postmasterPID(t, s), s.PID())
			}
			busy, err := pgx.Connect(t.Context(), dsn) // a connection that is open when the server ends
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = busy.Close(t.Context()) }()
			if err := end(s); err != nil {
				t.Fatal(err)
			}
			if err := exec1(t.Context(), dsn, "select"); err == nil || s.PID() != 0 {
				t.Fatal("a stopped server answers")
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			run(t, dsn, "insert into kept select n/(select count(*)::int from kept) from kept")
		})
	}
}

// A test process that is killed must not leave a server behind.
func TestPostgresDiesWithItsProcess(t *testing.T) {
	if os.Getenv("TESTKIT_CHILD") != "" {
		s := testkit.StartPostgres(t)
		fmt.Println("DIR", s.Socket())
		fmt.Println("PID", postmasterPID(t, s))
		select {} // killed by the parent
	}
	testkit.Postgres(t) // skips where there is none
	cmd := exec.Command(os.Args[0], "-test.run=^TestPostgresDiesWithItsProcess$")
	cmd.Env = append(os.Environ(), "TESTKIT_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if dir, ok := strings.CutPrefix(lines.Text(), "DIR "); ok {
			t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the child cannot: it is killed
		}
		if s, ok := strings.CutPrefix(lines.Text(), "PID "); ok {
			pid, _ = strconv.Atoi(s)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if pid == 0 {
		t.Fatal("the child has not started a server")
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		if state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil &&
			strings.Contains(string(state), ") Z ") {
			return // ended, not yet collected by init
		}
		if time.Now().After(deadline) {
			t.Fatalf("postgres %d outlives the process that started it", pid)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func postmasterPID(t *testing.T, s *testkit.PostgresServer) int {
	t.Helper()
	b, err := os.ReadFile(s.Socket() + "/data/postmaster.pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(string(b), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// as returns the user id that owns the server's socket.
func as(t *testing.T, dsn string) uint32 {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(cfg.Host + "/.s.PGSQL.5432")
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func run(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if err := exec1(t.Context(), dsn, s); err != nil {
			t.Fatal(err)
		}
	}
}

func exec1(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	return err
}
