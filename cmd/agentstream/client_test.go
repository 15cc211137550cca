package main

import (
	"bytes"
	"strings"
	"testing"

	"agentstream/internal/testkit"

	"agentstream/cmd/agentstream/internal/cli"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestVersion(t *testing.T) {
	var b bytes.Buffer
	cmd := VersionCmd{Streams: cli.Streams{Out: &b}}
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"agentstream", "go ", "nats-server", "nats.go"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
}
