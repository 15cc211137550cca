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
	set := []string{"AGENTSTREAM_LISTEN=x", "AGENTSTREAM_POSTGRES_FILE=x", "AGENTSTREAM_PORT=tcp://10.0.0.1:80",
		"AGENTSTREAM_SERVICE_HOST=x",
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

// TestExamples: the help of every command has an example, which can be read.
func TestExamples(t *testing.T) {
	known := map[string]bool{}
	for _, n := range commands(t).Leaves(false) {
		path := n.Path()
		known[path] = true
		if run := "run " + path; examples[run] != nil {
			path = run
		} else if path == "runs" {
			path = "run list (ls)"
		}
		if len(examples[path]) == 0 {
			t.Errorf("%s has no example", path)
		}
		for _, line := range examples[path] {
			_, line, _ = strings.Cut(strings.TrimSuffix(line, ")"), "agentstream ")
			var words []string
			for i, part := range strings.Split(line, "'") {
				if i%2 == 1 {
					words = append(words, part)
					continue
				}
				words = append(words, strings.Fields(part)...)
			}
			var cli CLI
			p, err := newParser(&cli, &settings{env: func(string) (string, bool) { return "", false }})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Parse(words); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	for path := range examples {
		if !known[path] {
			t.Errorf("there is no command %s", path)
		}
	}
	first := map[string]bool{}
	for _, n := range commands(t).Leaves(false) {
		for _, f := range n.Flags {
			if n.Path() == "dev" && headingOf(f.Name) == nil {
				first[f.Name] = true
			}
		}
	}
	if len(first) > 6 || !first["listen"] || !first["data"] || !first["auth-token"] {
		t.Errorf("the first flags of dev are %v", first)
	}
}

// TestJSON: every command that prints can print JSON. Those that do not print are named here.
func TestJSON(t *testing.T) {
	silent := map[string]bool{"dev": true, "edge": true, "persist": true, "worker": true, "proxy": true, "record": true,
		"help": true, "completion": true,
		"tap run": true, "tap remove": true, "tap deadletters retry": true, "tap deadletters drop": true,
		"keys create": true, "keys rotate": true, "keys delete": true,
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
