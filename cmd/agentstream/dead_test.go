package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/publish"
	"agentstream/cmd/agentstream/internal/runs"
	"agentstream/cmd/agentstream/internal/timeline"
	"agentstream/internal/testkit"
)

// A command to a server that is not there ends with its address and why, and does not try again. With --wait it does.
func TestCommandsWithoutServer(t *testing.T) {
	addr := testkit.FreeAddr(t)
	file := filepath.Join(t.TempDir(), "events.ndjson")
	if err := os.WriteFile(file, []byte(`{"type":"text.delta","payload":{"text":"x"}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type command interface{ Run(context.Context) error }
	var out, errs bytes.Buffer
	streams := cli.Streams{Out: &out, Err: &errs}
	for name, c := range map[string]struct {
		cmd  command
		args []string
	}{
		"publish":       {&publish.PublishCmd{Streams: streams}, []string{file}},
		"publish named": {&publish.PublishCmd{Streams: streams}, []string{file, "--run=r1"}},
		"runs":          {&runs.ListCmd{Streams: streams}, nil},
		"tail":          {&timeline.TailCmd{Streams: streams}, []string{"r1"}},
		"snapshot":      {&timeline.TailCmd{Streams: streams}, []string{"r1", "--snapshot"}},
		"replay":        {&timeline.ReplayCmd{Streams: streams}, []string{"r1"}},
		"cancel":        {&runs.CancelCmd{}, []string{"r1"}},
		"say":           {&runs.SayCmd{}, []string{"r1", "hello"}},
		"answer":        {&runs.AnswerCmd{}, []string{"r1", "q1", "yes"}},
		"approve":       {&runs.ApproveCmd{}, []string{"r1"}},
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			errs.Reset()
			k, err := kong.New(c.cmd, kong.Vars{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := k.Parse(append(c.args, "--server=http://"+addr)); err != nil {
				t.Fatal(err)
			}
			err = c.cmd.Run(t.Context())
			if !errors.Is(err, agentstream.ErrUnreachable) || !strings.Contains(err.Error(), addr) ||
				!strings.Contains(err.Error(), "refused") {
				t.Errorf("error %v", err)
			}
			if strings.Contains(errs.String(), "again in") {
				t.Errorf("it tries again: %s", errs.String())
			}
			t.Logf("agentstream: %v", err)
		})
	}
	t.Run("wait", func(t *testing.T) {
		err := (&runs.ListCmd{Streams: streams,
			ServerFlags: cli.ServerFlags{Server: "http://" + addr, Wait: true, GiveUp: 300 * time.Millisecond}}).Run(t.Context())
		if errors.Is(err, agentstream.ErrUnreachable) || !errors.Is(err, agentstream.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
	})
}
