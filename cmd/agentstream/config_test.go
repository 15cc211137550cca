package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"

	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
)

// parse reads a command line with an environment of its own. Real variables are set as well, since
// kong reads those itself.
func parse(t *testing.T, env map[string]string, args ...string) (*CLI, error) {
	t.Helper()
	for k, v := range env {
		t.Setenv(k, v)
	}
	var cli CLI
	settings, err := loadSettings(args, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	p, err := newParser(&cli, settings)
	if err != nil {
		return nil, err
	}
	p.Exit = func(int) {}
	kong.Writers(&strings.Builder{}, &strings.Builder{}).Apply(p)
	_, err = p.Parse(args)
	return &cli, err
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Flag, environment, file of the environment, configuration file: the first that speaks wins.
func TestPrecedence(t *testing.T) {
	cfg := file(t, `{"listen":"127.0.0.1:4","demo-speed":0.5,"partitions":16,"demo":false}`)
	asYAML := file(t, "# of a team\nlisten: 127.0.0.1:4\ndemo-speed: 0.5\npartitions: 16\ndemo: false\n")
	secret := file(t, "127.0.0.1:3\n")
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"default", nil, []string{"dev"}, "127.0.0.1:8080"},
		{"file", nil, []string{"dev", "--config", cfg}, "127.0.0.1:4"},
		{"YAML", nil, []string{"dev", "--config", asYAML}, "127.0.0.1:4"},
		{"_FILE over file", map[string]string{"AGENTSTREAM_LISTEN_FILE": secret}, []string{"--config=" + cfg, "dev"},
			"127.0.0.1:3"},
		{"environment over _FILE", map[string]string{"AGENTSTREAM_LISTEN_FILE": secret,
			"AGENTSTREAM_LISTEN": "127.0.0.1:2"}, []string{"dev", "--config", cfg}, "127.0.0.1:2"},
		{"flag over all", map[string]string{"AGENTSTREAM_LISTEN": "127.0.0.1:2"},
			[]string{"dev", "--config", cfg, "--listen", "127.0.0.1:1"}, "127.0.0.1:1"},
		{"configuration named by the environment", map[string]string{"AGENTSTREAM_CONFIG": cfg}, []string{"dev"},
			"127.0.0.1:4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cli, err := parse(t, c.env, c.args...)
			if err != nil || cli.Dev.Listen != c.want {
				t.Fatalf("listen %q, want %q, err %v", cli.Dev.Listen, c.want, err)
			}
		})
	}
	for _, cfg := range []string{cfg, asYAML} {
		cli, err := parse(t, nil, "dev", "--config", cfg)
		if err != nil || cli.Dev.DemoSpeed != 0.5 || cli.Dev.Partitions != 16 || cli.Dev.Demo {
			t.Fatalf("%s: %+v %v", cfg, cli.Dev, err)
		}
	}
}

// Errors name the flag, and nothing starts.
func TestErrorsNameTheFlag(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dev", "--config", filepath.Join(t.TempDir(), "none")}, "--config"},
		{[]string{"dev", "--config", file(t, `[]`)}, "--config"},
		{[]string{"dev", "--config", file(t, `{"lisen":"x"}`)}, "lisen"},
		{[]string{"dev", "--config", file(t, "lisen: x\n")}, "lisen"},
		{[]string{"dev", "--config", file(t, "a: [1\n")}, "--config"},
		{[]string{"dev", "--demo-speed", "fast"}, "--demo-speed"},
		{[]string{"dev", "--sync", "sometimes"}, "--sync"},
		{[]string{"edge", "--drain", "soon"}, "--drain"},
		{[]string{"tial", "r"}, `"tail"?`},
		{[]string{"rnus"}, `"runs"?`},
		{[]string{"run", "aprove", "r"}, `did you mean "approve"?`},
	} {
		if _, err := parse(t, nil, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
	for _, f := range []node.ListenFlags{
		{Listen: "0.0.0.0:8080", AdminListen: "off", Tenant: "t"}, // everybody, without a token
		{Listen: "nowhere", AdminListen: "off", Tenant: "t"},
		{Listen: "127.0.0.1:1", AdminListen: "x", Tenant: "t"},
		{Listen: "127.0.0.1:1", AdminListen: "off", Tenant: "a.b"},
	} {
		if err := f.Check(true); err == nil || !strings.HasPrefix(err.Error(), "--") {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if err := (&node.ListenFlags{Listen: "0.0.0.0:8080", AdminListen: "off", Tenant: "t",
		AuthToken: "s"}).Check(false); err != nil {
		t.Error(err)
	}
}

// TestAdminPortIsFree: dev takes another port for operators when the default one is in use; one that was chosen is not
// replaced.
func TestAdminPortIsFree(t *testing.T) {
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", node.DefaultAdmin)
	if err == nil { // else somebody else has it, which is what is needed
		defer ln.Close()
	}
	dev := DevCmd{}
	dev.Listen, dev.AdminListen, dev.SpareAdmin = "127.0.0.1:0", node.DefaultAdmin, "127.0.0.1:0"
	ports, err := dev.Bind(t.Context(), "", process.NewMetrics(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer ports.Close()
	if dev.AdminListen == node.DefaultAdmin || strings.HasSuffix(dev.AdminListen, ":0") {
		t.Errorf("operators are served at %s", dev.AdminListen)
	}
	chosen := DevCmd{}
	chosen.Listen, chosen.AdminListen = "127.0.0.1:0", dev.AdminListen
	if _, err := chosen.Bind(t.Context(), "", process.NewMetrics(), slog.New(slog.DiscardHandler)); !errors.Is(err,
		syscall.EADDRINUSE) {
		t.Errorf("a port that was chosen and is in use: %v", err)
	}
}
