package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats-server/v2/server"
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
	parser, err := newParser(&cli, nil, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	if err := kong.Visit(parser.Model.Node, func(n kong.Visitable, next kong.Next) error {
		if f, ok := n.(*kong.Flag); ok {
			for _, e := range f.Envs {
				known[e] = true
			}
		}
		return next(nil)
	}); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`AGENTSTREAM_[A-Z_]+`).FindAllString(compose(t), -1)
	if len(names) < 5 {
		t.Fatalf("only %q", names)
	}
	for _, name := range names {
		if !known[name] {
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
	opts, err := server.ProcessConfigFile(writeFile(t, "nats.conf", conf.String()))
	if err != nil {
		t.Fatal(err)
	}
	if !opts.SyncAlways || opts.ServerName != "nats-1" || opts.StoreDir != "/data" || len(opts.Routes) != 3 || opts.Cluster.Name == "" {
		t.Errorf("sync_always=%v server_name=%q store_dir=%q routes=%v cluster=%q", opts.SyncAlways, opts.ServerName, opts.StoreDir, opts.Routes, opts.Cluster.Name)
	}
}
