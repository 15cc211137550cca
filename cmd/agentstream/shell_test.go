package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestKnownVariables: what is set rightly, or by Kubernetes, is not named.
func TestKnownVariables(t *testing.T) {
	root := commands(t)
	set := []string{"AGENTSTREAM_LISTEN=x", "AGENTSTREAM_POSTGRES_FILE=x", "AGENTSTREAM_PORT=tcp://10.0.0.1:80", "AGENTSTREAM_SERVICE_HOST=x",
		"AGENTSTREAM_PORT_80_TCP_ADDR=x", "PATH=x", "AGENTSTREAM_PORT=8080", "AGENTSTREAM_NIX_FILE=x"}
	if got := unknownVariables(root, set); !slices.Equal(got, []string{"AGENTSTREAM_NIX_FILE", "AGENTSTREAM_PORT"}) {
		t.Errorf("unknown: %v", got)
	}
}

func commands(t *testing.T) *kong.Node {
	t.Helper()
	var cli CLI
	p, err := newParser(&cli, &settings{env: os.LookupEnv})
	if err != nil {
		t.Fatal(err)
	}
	return p.Model.Node
}

// TestJSON: every command that prints can print JSON. Those that do not print are named here.
func TestJSON(t *testing.T) {
	silent := map[string]bool{"dev": true, "edge": true, "persist": true, "worker": true, "proxy": true, "record": true, "help": true, "completion": true,
		"tap run": true, "tap remove": true, "tap deadletters retry": true, "tap deadletters drop": true,
		"hold add": true, "hold remove": true, "retention set": true, "retention clear": true}
	for _, n := range commands(t).Leaves(false) {
		has := slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == "json" && f.IsBool() })
		if has == silent[n.Path()] {
			t.Errorf("%s: --json %t", n.Path(), has)
		}
		if n.Help == "" || !strings.HasSuffix(n.Help, ".") {
			t.Errorf("%s: help %q", n.Path(), n.Help)
		}
	}
}
