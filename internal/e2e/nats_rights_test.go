package e2e_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// violations collects what a NATS server says of rights that somebody lacks.
type violations struct{ lockedBuffer }

func (v *violations) note(format string, a ...any) {
	if line := fmt.Sprintf(format, a...); strings.Contains(line, "Violation") {
		_, _ = io.WriteString(v, line+"\n")
	}
}

func (v *violations) Noticef(string, ...any)         {}
func (v *violations) Warnf(format string, a ...any)  { v.note(format, a...) }
func (v *violations) Fatalf(format string, a ...any) { v.note(format, a...) }
func (v *violations) Errorf(format string, a ...any) { v.note(format, a...) }
func (v *violations) Debugf(string, ...any)          {}
func (v *violations) Tracef(string, ...any)          {}

// natsWithRights starts a NATS server whose users are those that the program prints, each with its name as the
// password, and one more, all, who may do everything.
func natsWithRights(t *testing.T) (of func(user string) string, seen *violations) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "migrate", "--nats-permissions").Output()
	if err != nil {
		t.Fatal(err)
	}
	users := regexp.MustCompile(`\$NATS_([A-Z]+)_PASSWORD`).ReplaceAllStringFunc(string(out), func(v string) string {
		return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(v, "$NATS_"), "_PASSWORD"))
	})
	users = strings.Replace(users, "users = [\n", "users = [\n  { user: all, password: all }\n", 1)
	conf := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf("port: -1\nlisten: 127.0.0.1:-1\njetstream { store_dir: %q }\nauthorization {\n%s}\n",
		t.TempDir(), users)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	seen = &violations{}
	s.SetLogger(seen, false, false)
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return func(user string) string { return fmt.Sprintf("nats://%s:%s@%s", user, user, s.Addr()) }, seen
}

// forbidden is what a user may not ask for, or write.
var forbidden = map[string][]string{
	"edge": {"$JS.API.STREAM.DELETE.AGENT_0", "$JS.API.STREAM.PURGE.AGENT_0", "$JS.API.STREAM.MSG.DELETE.AGENT_0",
		"$JS.API.STREAM.UPDATE.AGENT_0",
		"$JS.API.STREAM.DELETE.KV_AGENT_KEYS", "$JS.API.CONSUMER.DELETE.AGENT_0.persister",
		"$JS.API.STREAM.RESTORE.AGENT_9", "$JS.API.STREAM.CREATE.MINE",
		"$KV.AGENT_TAPS.place"},
	"tap": {"$JS.API.STREAM.DELETE.AGENT_0", "$JS.API.STREAM.PURGE.AGENT_0", "$JS.API.STREAM.MSG.DELETE.AGENT_0",
		"$JS.API.STREAM.UPDATE.AGENT_0",
		"$JS.API.STREAM.CREATE.MINE", "agent.0.default.run", "$KV.AGENT_KEYS.key", "$KV.AGENT_TICKETS.ticket",
		"ingest.default.run", "live.agent.0.default.run"},
	"worker": {"$JS.API.STREAM.PURGE.AGENT_0", "$JS.API.STREAM.MSG.DELETE.AGENT_0", "$KV.AGENT_TAPS.place"},
	"backup": {"$JS.API.STREAM.DELETE.AGENT_0", "$JS.API.STREAM.PURGE.AGENT_0", "$JS.API.STREAM.MSG.DELETE.AGENT_0",
		"$JS.API.STREAM.UPDATE.AGENT_0", "$JS.API.STREAM.CREATE.MINE", "$JS.API.CONSUMER.CREATE.AGENT_0",
		"$KV.AGENT_TAPS.place",
		"$KV.AGENT_KEYS.key", "agent.0.default.run", "ingest.default.run"},
	"proxy": {"$JS.API.STREAM.PURGE.AGENT_0", "$JS.API.CONSUMER.DELETE.AGENT_0.persister", "$KV.AGENT_TAPS.place"},
}

// refuse holds a server to its refusal of what a user publishes.
func refuse(t *testing.T, at string, seen *violations, subjects []string) {
	t.Helper()
	nc, err := nats.Connect(at, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range subjects {
		before := len(seen.String())
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, err := nc.RequestWithContext(ctx, subject, nil); err == nil || errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s may ask for %s: %v", at, subject, err)
		}
		cancel()
		eventually(t, 20*time.Second, subject+" is refused", func() bool { return len(seen.String()) > before })
	}
}

// TestNATSRights: with the rights that the program prints, every role does its work without a violation, and none can
// do what is another one's: an edge cannot delete or purge the log, nor take the persister's place in it.
func TestNATSRights(t *testing.T) {
	beside(t)
	of, seen := natsWithRights(t)
	dsn := testkit.Postgres(t)
	migrate(t, dsn, of("migrate"))
	edge := newProc(t, "edge", "--nats", of("edge"), "--postgres", dsn, "--nats-ingest")
	upstream, tapped := pelican(t), filepath.Join(t.TempDir(), "tapped.jsonl")
	for _, p := range []*proc{edge, newProc(t, "persist", "--nats", of("persist"), "--postgres", dsn, "--blobs",
		t.TempDir()),
		newProc(t, "tap", "--nats", of("tap"), "--name", "all", "--to", "file:"+tapped),
		newProc(t, "proxy", "--nats", of("proxy"), "--upstream", "a="+upstream.URL),
		newProc(t, "worker", "--nats", of("worker"), "--upstream", "anthropic="+upstream.URL, "--models", "any")} {
		p.start()
	}
	ask := func(method, path, body string, want int) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, edge.url(path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(body, "{") {
			req.Header.Set("Content-Type", "application/json")
		}
		req.Header.Set("Idempotency-Key", rand.Text())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want {
			t.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text)
		}
		return string(text)
	}
	ask("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"running"}}`, http.StatusOK)
	ask("POST", "/v1/agent/runs/run/tickets", "", http.StatusCreated)
	ask("POST", "/v1/agent/runs/run/pause", "", http.StatusAccepted)
	ask("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"done"}}`, http.StatusOK)
	ask("PUT", "/v1/agent/runs/run/blobs", strings.Repeat("b", 3<<20), http.StatusCreated)
	ask("GET", "/v1/agent/runs/run/snapshot", "", http.StatusOK)
	ask("GET", "/v1/agent/runs/run/stream", "", http.StatusOK)
	eventually(t, 20*time.Second, "the archive has the run",
		func() bool { return strings.Contains(ask("GET", "/v1/agent/runs", "", http.StatusOK), `"run"`) })
	eventually(t, 20*time.Second, "the tap has delivered the run", func() bool {
		text, _ := os.ReadFile(tapped)
		return strings.Contains(string(text), `"state":"done"`)
	})
	if text := seen.String(); text != "" {
		t.Errorf("rights are missing:\n%s", text)
	}

	for user, subjects := range forbidden {
		refuse(t, of(user), seen, subjects)
	}
	admin, err := natskit.Dial(of("all"), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	js, err := jetstream.New(admin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natskit.ReadLayout(t.Context(), js); err != nil {
		t.Error("the log is damaged:", err)
	}
}

// TestNATSRightsOfBackups: the user backup makes a backup and brings it back into other servers, without a violation.
func TestNATSRightsOfBackups(t *testing.T) {
	beside(t)
	of, seen := natsWithRights(t)
	dsn := testkit.Postgres(t)
	migrate(t, dsn, of("migrate"))
	edge := newProc(t, "edge", "--nats", of("edge"), "--postgres", dsn)
	edge.start()
	postTo(t, "http://"+edge.addr, "run_1", `{"type":"run.lifecycle","payload":{"state":"done"}}`+"\n")
	edge.stop()
	d := &drill{t: t, natsURL: of("backup"), dsn: dsn, blobs: t.TempDir()}
	folder := d.backUp()
	elsewhere, seenThere := natsWithRights(t)
	d.natsURL = elsewhere("backup")
	if out, code := d.command("restore", folder, "--only", "streams"); code != 0 || !strings.Contains(out, "7 restored") {
		t.Errorf("restore: %d %s", code, out)
	}
	if out, code := d.command("restore", folder, "--only", "streams"); code != 0 || !strings.Contains(out, "7 were there") {
		t.Errorf("restore again: %d %s", code, out)
	}
	if text := seen.String() + seenThere.String(); text != "" {
		t.Errorf("rights are missing:\n%s", text)
	}
	js, err := jetstream.New(dialed(t, elsewhere("all")))
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), natskit.StreamName(schema.Partition("run_1", 4)))
	if err != nil || s.CachedInfo().State.Msgs == 0 {
		t.Errorf("the stream has come back as %v, %v", s, err)
	}
	if at, err := natskit.LastBackup(t.Context(), dialed(t, of("all"))); err != nil || time.Since(at) > time.Hour {
		t.Errorf("the time of the backup is %v, %v", at, err)
	}
}

// dialed connects until the end of the test.
func dialed(t *testing.T, at string) *nats.Conn {
	t.Helper()
	nc, err := natskit.Dial(at, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
