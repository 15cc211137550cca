package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The embedded server leaves these two behind after Shutdown.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// TestTap writes two runs, one before the tap starts and one while it runs.
func TestTap(t *testing.T) {
	server := testkit.NATS(t)
	log, err := natsjs.Open(t.Context(), server.Conn)
	if err != nil {
		t.Fatal(err)
	}
	speak(t, log, "first", 7)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	lines, out := io.Pipe()
	followed := make(chan error, 1)
	go func() {
		defer out.Close()
		followed <- follow(ctx, server.Server.ClientURL(), out)
	}()
	var got []string
	for scan := bufio.NewScanner(lines); len(got) < 2 && scan.Scan(); {
		got = append(got, scan.Text())
		if len(got) == 1 {
			speak(t, log, "second", 9)
		}
	}
	stop()
	_, _ = io.Copy(io.Discard, lines)
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if want := []string{"acme first 3 7", "acme second 3 9"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// speak writes a run with one message.
func speak(t *testing.T, log producers.Log, id string, tokens int) {
	t.Helper()
	publisher, err := producers.New(producers.Config{Log: log, Key: schema.RunKey{Tenant: "acme", Run: id}})
	if err != nil {
		t.Fatal(err)
	}
	events := []schema.Event{
		{Type: schema.TypeMessageStart, Payload: []byte(`{"message_id":"m1","role":"assistant"}`)},
		{Type: schema.TypeMessageEnd, Payload: fmt.Appendf(nil,
			`{"message_id":"m1","stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":%d}}`, tokens)},
	}
	if _, err := publisher.Append(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestDocumentation holds docs/taps.md to the code here.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/taps.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, function, ok := strings.Cut(string(code), "\n// follow prints")
	if !ok || !strings.Contains(string(page), "// follow prints"+function) {
		t.Error("docs/taps.md does not print main.go as it is")
	}
}
