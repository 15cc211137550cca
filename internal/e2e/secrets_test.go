package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentstream/internal/testkit"
)

// secretRead is longer than a process needs to see what a secret's file says now.
const secretRead = 1500 * time.Millisecond

// secrets is a deployment of a persister and two edges, whose secrets are all in files, under a steady load.
type secrets struct {
	t     *testing.T
	dir   string
	edges [2]*proc

	nats     *server.Server
	natsConf string
	admin    *pgx.Conn
	socket   string

	token    atomic.Pointer[string] // of the clients
	stored   atomic.Int64
	asked    atomic.Int64
	mu       sync.Mutex
	failures []string
}

// TestSecretsAreReplacedUnderLoad: the token, the secret of shares, the password of the database and that of NATS are
// replaced one after the other, as docs/secure.md says, and no request of a steady load fails meanwhile. Afterwards
// the old ones open nothing.
func TestSecretsAreReplacedUnderLoad(t *testing.T) {
	beside(t)
	s := newSecrets(t)
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range s.edges {
		s.append(i)
		load.Go(func() { s.write(ctx, i) })
		load.Go(func() { s.read(ctx, i) })
		load.Go(func() { s.share(ctx, i) })
	}
	defer load.Wait()
	defer cancel()
	for _, step := range []struct {
		name    string
		replace func()
	}{
		{"nothing", func() { time.Sleep(secretRead) }},
		{"token", s.replaceToken}, {"share secret", s.replaceShareSecret},
		{"database", s.replaceDatabase}, {"NATS", s.replaceNATS},
	} {
		before := s.asked.Load()
		step.replace()
		t.Logf("%s: %d requests", step.name, s.asked.Load()-before)
		for _, f := range s.failed() {
			t.Errorf("%s: %s", step.name, f)
		}
	}
	cancel()
	load.Wait()
	there := 0
	for i := range s.edges {
		there += s.count(i)
	}
	if n := int(s.stored.Load()); n != there {
		t.Errorf("%d events were acknowledged, %d are there", n, there)
	}
}

// count returns how many events the run of an edge has, as the other one sees it.
func (s *secrets) count(edge int) (n int) {
	for {
		path := fmt.Sprintf("/v1/agent/runs/load_%d/events?after=%d&limit=1000", edge, n)
		page := splitEvents(s.t, []byte(s.ask(1-edge, *s.token.Load(), "GET", path, "", http.StatusOK)))
		n += len(page)
		if len(page) == 0 {
			return n
		}
	}
}

func newSecrets(t *testing.T) *secrets {
	t.Helper()
	s := &secrets{t: t, dir: t.TempDir()}
	s.serveNATS()
	s.serveDatabase()
	s.put("AUTH_TOKEN", edgeToken)
	s.put("SHARE_SECRET", "first-secret-of-shares-with-32-bytes")
	token := edgeToken
	s.token.Store(&token)
	migrate(t, s.dsn("first"), s.natsURL("first"))
	persist := newProc(t, "persist", "--linger", "50ms")
	all := []*proc{persist}
	for i := range s.edges {
		s.edges[i] = newProc(t, "edge")
		s.edges[i].args = s.edges[i].args[:len(s.edges[i].args)-2] // without a token of its own
		all = append(all, s.edges[i])
	}
	for _, p := range all {
		for _, name := range []string{"POSTGRES", "NATS", "AUTH_TOKEN", "SHARE_SECRET"} {
			p.env = append(p.env, "AGENTSTREAM_"+name+"_FILE="+filepath.Join(s.dir, name))
		}
		p.start()
	}
	return s
}

// put replaces a file as an operator does: whole.
func (s *secrets) put(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *secrets) natsURL(password string) string {
	return "nats://app:" + password + "@" + s.nats.Addr().String()
}

// configureNATS writes the servers' configuration with a password.
func (s *secrets) configureNATS(port int, password string) {
	s.t.Helper()
	text := fmt.Sprintf("listen: \"127.0.0.1:%d\"\njetstream { store_dir: %q }\nauthorization { user: app, password: %q }\n",
		port, filepath.Join(s.dir, "store"), password)
	if err := os.WriteFile(s.natsConf, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *secrets) serveNATS() {
	s.t.Helper()
	s.natsConf = filepath.Join(s.dir, "nats.conf")
	s.configureNATS(testkit.FreePort(s.t), "first")
	opts, err := server.ProcessConfigFile(s.natsConf)
	if err != nil {
		s.t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	if s.nats, err = server.NewServer(opts); err != nil {
		s.t.Fatal(err)
	}
	go s.nats.Start()
	s.t.Cleanup(func() { s.nats.Shutdown(); s.nats.WaitForShutdown() })
	if !s.nats.ReadyForConnections(20 * time.Second) {
		s.t.Fatal("the server is not ready")
	}
	s.put("NATS", s.natsURL("first"))
}

func (s *secrets) dsn(password string) string {
	return fmt.Sprintf("host=%s port=5432 user=app password=%s dbname=app sslmode=disable", s.socket, password)
}

// shortLived makes the connections of a pool live for a second, so that requests need new ones, with the password of
// now.
const shortLived = " pool_max_conn_lifetime=1s"

func (s *secrets) serveDatabase() {
	s.t.Helper()
	pg := testkit.StartPostgres(s.t)
	s.socket = pg.Socket()
	admin, err := pgx.Connect(s.t.Context(), pg.Database(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	s.admin = admin
	s.t.Cleanup(func() { _ = admin.Close(context.Background()) })
	hba := filepath.Join(s.socket, "data", "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("local all app scram-sha-256\nlocal all all trust\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
	for _, text := range []string{
		"create role app superuser login password 'first'", "create database app owner app", "select pg_reload_conf()",
	} {
		if _, err := admin.Exec(s.t.Context(), text); err != nil {
			s.t.Fatal(err)
		}
	}
	s.put("POSTGRES", s.dsn("first")+shortLived)
}

// ask notes a request that is not answered as it should be.
func (s *secrets) ask(edge int, token, method, path, body string, want int) string {
	status, text := askAs(s.t, token, method, s.edges[edge].url(path), body)
	s.asked.Add(1)
	if status != want && s.t.Context().Err() == nil {
		s.mu.Lock()
		s.failures = append(s.failures, fmt.Sprintf("%s %s of edge %d: %d %.200s", method, path, edge, status, text))
		s.mu.Unlock()
	}
	return text
}

func (s *secrets) failed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.failures
	s.failures = nil
	return out
}

// secretsRest is between two requests of one client.
const secretsRest = 20 * time.Millisecond

func (s *secrets) write(ctx context.Context, edge int) {
	for ; ctx.Err() == nil; time.Sleep(secretsRest) {
		s.append(edge)
	}
}

// append appends an event to the run of an edge.
func (s *secrets) append(edge int) {
	path := fmt.Sprintf("/v1/agent/runs/load_%d/events", edge)
	s.ask(edge, *s.token.Load(), "POST", path, `{"type":"text.delta","payload":{"text":"x"}}`, http.StatusOK)
	s.stored.Add(1)
}

func (s *secrets) read(ctx context.Context, edge int) {
	for ; ctx.Err() == nil; time.Sleep(secretsRest) {
		s.ask(edge, *s.token.Load(), "GET", "/v1/agent/runs?limit=10", "", http.StatusOK) // of the database
		s.ask(edge, *s.token.Load(), "POST", fmt.Sprintf("/v1/agent/runs/load_%d/tickets", edge), "", http.StatusCreated)
	}
}

// share makes a share at one edge and uses it at the other.
func (s *secrets) share(ctx context.Context, edge int) {
	path := fmt.Sprintf("/v1/agent/runs/load_%d", edge)
	for ; ctx.Err() == nil; time.Sleep(secretsRest) {
		if share := s.newShare(edge); share != "" {
			s.ask(1-edge, share, "GET", path+"/snapshot", "", http.StatusOK)
		}
	}
}

func (s *secrets) newShare(edge int) string {
	path := fmt.Sprintf("/v1/agent/runs/load_%d/shares", edge)
	text := s.ask(edge, *s.token.Load(), "POST", path, "", http.StatusCreated)
	var made struct{ Share string }
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		return ""
	}
	return made.Share
}

func (s *secrets) replaceToken() {
	next := "second-token-of-the-edges"
	s.put("AUTH_TOKEN", next+"\n"+edgeToken)
	time.Sleep(secretRead)
	s.token.Store(&next)
	time.Sleep(secretRead) // what was asked with the old one is answered
	s.put("AUTH_TOKEN", next)
	time.Sleep(secretRead)
	for i := range s.edges {
		s.ask(i, edgeToken, "GET", "/v1/agent/runs", "", http.StatusUnauthorized)
	}
}

func (s *secrets) replaceShareSecret() {
	const first, second = "first-secret-of-shares-with-32-bytes", "second-secret-of-shares-of-32-bytes"
	old := s.newShare(0)
	for _, text := range []string{first + "\n" + second, second + "\n" + first} {
		s.put("SHARE_SECRET", text)
		time.Sleep(secretRead)
		s.ask(1, old, "GET", "/v1/agent/runs/load_0/snapshot", "", http.StatusOK)
	}
	s.put("SHARE_SECRET", second)
	time.Sleep(secretRead)
	s.ask(1, old, "GET", "/v1/agent/runs/load_0/snapshot", "", http.StatusUnauthorized)
}

func (s *secrets) replaceDatabase() {
	if _, err := s.admin.Exec(s.t.Context(), "alter role app password 'second'"); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(secretRead) // the operator's, between the two: connections end in it
	s.put("POSTGRES", s.dsn("second")+shortLived)
	time.Sleep(2 * secretRead)
	if conn, err := pgx.Connect(s.t.Context(), s.dsn("first")); err == nil {
		_ = conn.Close(s.t.Context())
		s.t.Error("the old password of the database is taken")
	}
	var n int
	err := s.admin.QueryRow(s.t.Context(), `select count(*) from pg_stat_activity
		where usename = 'app' and backend_start < now() - interval '3 seconds'`).Scan(&n)
	if err != nil || n > 0 {
		s.t.Errorf("%d connections are older than the password, %v", n, err)
	}
}

func (s *secrets) replaceNATS() {
	_, port, _ := strings.Cut(s.nats.Addr().String(), ":")
	var n int
	if _, err := fmt.Sscan(port, &n); err != nil {
		s.t.Fatal(err)
	}
	s.configureNATS(n, "second")
	if err := s.nats.Reload(); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(secretRead)
	s.put("NATS", s.natsURL("second"))
	time.Sleep(4 * secretRead)
	if nc, err := nats.Connect(s.natsURL("first")); err == nil {
		nc.Close()
		s.t.Error("the old password of NATS is taken")
	}
}
