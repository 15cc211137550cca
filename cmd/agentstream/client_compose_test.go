package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"agentstream/internal/natskit"
)

// compose is the deployment that is shipped; no engine runs it here, so that its parts are checked
// against what reads them.
func compose(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestComposeSetsVariablesThatExist(t *testing.T) {
	var cli CLI
	parser, err := newParser(&cli, &settings{env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for f := range flagsOf(parser.Model.Node) {
		for _, e := range f.Envs {
			known[e] = true
		}
	}
	names := regexp.MustCompile(`AGENTSTREAM_[A-Z_]+`).FindAllString(compose(t), -1)
	if len(names) < 5 {
		t.Fatalf("only %q", names)
	}
	for _, name := range names {
		if name = strings.TrimSuffix(name, "_FILE"); !known[name] {
			t.Errorf("no flag reads %s", name)
		}
	}
}

func TestComposeNATSConfigurationIsDurable(t *testing.T) {
	_, rest, ok := strings.Cut(compose(t), "\n  nats:\n    content: |\n")
	if !ok {
		t.Fatal("no configuration named nats")
	}
	var conf strings.Builder
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "      ") {
			break
		}
		conf.WriteString(strings.ReplaceAll(line[6:], "$$", "$"))
	}
	t.Setenv("NATS_NAME", "nats-1")
	root := t.TempDir()
	for path, text := range map[string]string{"etc/nats/nats.conf": conf.String(),
		"run/secrets/nats_password": `NATS_PASSWORD = "secret"`, "run/secrets/nats_users": passwords()} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755),
			os.WriteFile(filepath.Join(root, path), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	opts, err := server.ProcessConfigFile(filepath.Join(root, "etc/nats/nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]*server.User{}
	for _, u := range opts.Users {
		users[u.Username] = u
		if u.Account.Name != "AGENTSTREAM" {
			t.Errorf("%s is in the account %s", u.Username, u.Account.Name)
		}
	}
	if all := users["agentstream"]; all == nil || all.Password != "secret" || all.Permissions != nil ||
		opts.SystemAccount != "SYS" || len(users) != len(natskit.Roles())+1 {
		t.Errorf("%d users, the operators' %+v, system account %q", len(users), all, opts.SystemAccount)
	}
	for _, r := range natskit.Roles() {
		u := users[r.Name]
		if u == nil || u.Password != "of "+r.Name || !slices.Equal(u.Permissions.Publish.Allow, r.Publish) ||
			!slices.Equal(u.Permissions.Subscribe.Allow, r.Subscribe) {
			t.Errorf("%s: %+v; migrate --nats-permissions prints %+v", r.Name, u, r)
		}
	}
	if opts.JetStreamMaxStore <= 0 || opts.JetStreamMaxMemory <= 0 {
		t.Errorf("the store has no limit: %d, %d", opts.JetStreamMaxStore, opts.JetStreamMaxMemory)
	}
	if !opts.SyncAlways || opts.ServerName != "nats-1" || opts.StoreDir != "/data" || len(opts.Routes) != 3 ||
		opts.Cluster.Name == "" {
		t.Errorf("sync_always=%v server_name=%q store_dir=%q routes=%v cluster=%q", opts.SyncAlways, opts.ServerName,
			opts.StoreDir, opts.Routes, opts.Cluster.Name)
	}
}

// passwords are the variables of a file nats_users.
func passwords() string {
	var b strings.Builder
	for _, r := range natskit.Roles() {
		fmt.Fprintf(&b, "NATS_%s_PASSWORD = %q\n", strings.ToUpper(r.Name), "of "+r.Name)
	}
	return b.String()
}

// TestComposeSecrets: nobody holds another's password, none stands in the file or the environment, and the database is
// asked over TCP whether it is there.
func TestComposeSecrets(t *testing.T) {
	text := compose(t)
	for _, gone := range []string{"PGPASSWORD", "POSTGRES_PASSWORD:", "AGENTSTREAM_AUTH_TOKEN:"} {
		if strings.Contains(text, gone) {
			t.Errorf("%s puts a secret into the environment", gone)
		}
	}
	for _, want := range []string{
		"secrets: [nats_url_edge, postgres_reader, auth_token]", "secrets: [nats_url_migrate, postgres_owner]",
		"secrets: [nats_url_persist, postgres_owner]", "secrets: [postgres_admin, postgres_owner, postgres_reader]",
		`"pg_isready", "-h", "127.0.0.1"`, "worker_rlimit_nofile ", "healthcheck: *asked",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s", want)
		}
	}
	if n := strings.Count(text, ", postgres_owner]"); n != 2 {
		t.Errorf("%d services have the owner's password, want migrate and persist", n)
	}
}
