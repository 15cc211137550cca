package taps

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	testkit.Main(m,
		// The embedded server leaves these two running after Shutdown.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// TestCommands: a tap delivers, is listed, keeps what is refused, delivers that once more, and is removed.
func TestCommands(t *testing.T) {
	server := testkit.NATS(t)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	for range 3 {
		p := w.Texts("", 5)
		msg := &nats.Msg{Subject: schema.Subject(p.Key, "", server.Partitions), Header: p.Headers(), Data: p.Body}
		if _, err := server.JS.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	at := cli.NATSFlags{NATS: server.Server.ClientURL()}
	path := filepath.Join(t.TempDir(), "out.jsonl")
	var refuse atomic.Bool
	refuse.Store(true)
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if refuse.Load() && r.Header.Get("Webhook-Id") == "acme/run_1/8" {
			rw.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	defer hook.Close()
	to := SinkFlags{To: []string{"file:" + path, "webhook+" + hook.URL + "?token=hush"}, AllowPrivate: true,
		WebhookTimeout: time.Second}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	run := RunCmd{Name: "one", From: "all", SinkFlags: to, NATSFlags: at, AdminListen: "off", Linger: time.Millisecond}
	go func() { ended <- run.Run(ctx, log) }()
	var out bytes.Buffer
	streams := cli.Streams{Out: &out, Err: io.Discard}
	row := func() (r struct {
		Lag     int `json:"lag_messages"`
		Letters int `json:"dead_letters"`
		To      []string
	}) {
		out.Reset()
		if err := (&ListCmd{NATSFlags: at, JSON: true, Streams: streams}).Run(t.Context(), log); err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(out.Bytes(), &r) // empty until there is a tap
		return r
	}
	for deadline := time.Now().Add(time.Minute); ; {
		r := row()
		if len(r.To) == 2 && r.Lag == 0 && r.Letters == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s", out.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if strings.Contains(out.String(), "hush") {
		t.Errorf("a token is shown: %s", out.String())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), "\n") != 15 {
		t.Errorf("%d lines, %v", strings.Count(string(text), "\n"), err)
	}
	out.Reset()
	if err := (&LettersListCmd{NATSFlags: at, Name: "one", Streams: streams}).Run(t.Context(), log); err != nil ||
		!strings.Contains(out.String(), "acme/run_1") {
		t.Errorf("%s, %v", out.String(), err)
	}
	to.To = to.To[1:]
	retry := LettersRetryCmd{LetterFlags: LetterFlags{NATSFlags: at, Name: "one", All: true}, SinkFlags: to}
	retry.Err = io.Discard
	if err := retry.Run(t.Context(), log); err == nil {
		t.Error("what is refused again is delivered")
	}
	refuse.Store(false)
	if err := retry.Run(t.Context(), log); err != nil || row().Letters != 0 {
		t.Errorf("%v: %s", err, out.String())
	}
	remove := RemoveCmd{NATSFlags: at, Name: "one", Streams: streams}
	if err := remove.Run(t.Context(), log); err != nil {
		t.Error(err)
	}
	if err := remove.Run(t.Context(), log); err == nil {
		t.Error("a tap that is not there is removed")
	}
	bad := RunCmd{Name: "two", From: "yesterday", SinkFlags: to, NATSFlags: at}
	if err := bad.Run(t.Context(), log); err == nil || !strings.Contains(err.Error(), "--from") {
		t.Error(err)
	}
}
