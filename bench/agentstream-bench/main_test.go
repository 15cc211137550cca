package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"agentstream/bench/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program builds the product and returns the path of its binary.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentstream")
	if out, err := exec.Command("go", "build", "-C", filepath.Join("..", ".."), "-o", path,
		"./cmd/agentstream").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// flags returns the options as kong reads them.
func flags(t *testing.T, args ...string) *options {
	t.Helper()
	var c options
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c
}

// The command alone: it starts a server, loads it by HTTP, by a stream and by the SDK, and leaves nothing behind.
func TestStartsItsOwnServer(t *testing.T) {
	t.Setenv("AGENTSTREAM_AUTH_TOKEN", "of another server")
	binary, temp := program(t), t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, mode := range []string{"http", "stream", "sdk"} {
		dir := t.TempDir()
		asJSON, svg := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.svg")
		c := flags(t, "--mode", mode, "--runs=5", "--rate=200", "--duration=500ms", "--warm=100ms", "--json", asJSON,
			"--svg", svg)
		var out, said bytes.Buffer
		c.Program = binary
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.run(ctx, &out, &said); err != nil {
			t.Fatalf("%s: %v\n%s%s", mode, err, &out, &said)
		}
		var r load.Result
		text, err := os.ReadFile(asJSON)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &r); err != nil || r.Err() != nil || r.Publisher != mode ||
			r.Delivered != 2*r.Acked || r.Acked < 100 {
			t.Errorf("%s: %+v: %v", mode, r, err)
		}
		if r.Server == nil || r.Server.MemoryAfter < 1<<20 {
			t.Errorf("%s: the server is said to use %+v", mode, r.Server)
		}
		if pic, err := os.ReadFile(svg); err != nil || !bytes.HasPrefix(pic, []byte("<svg ")) {
			t.Errorf("%s: picture %.40q: %v", mode, pic, err)
		}
		if !strings.Contains(out.String(), "0 lost") || !strings.Contains(said.String(), "publishing") {
			t.Errorf("%s: said %q, reported %q", mode, &said, &out)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	left, err := filepath.Glob(filepath.Join(temp, "agentstream-bench*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "broken")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho no disk >&2; exit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := flags(t)
	c.Program = path
	if err := c.run(t.Context(), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("error %v does not say why", err)
	}
}

// The token goes where it is asked for, and nowhere else.
func TestShowsItsToken(t *testing.T) {
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := flags(t, "--url", srv.URL+"/", "--token-file", file, "--runs=1")
	var said bytes.Buffer
	err := c.run(t.Context(), &said, &said)
	if !errors.Is(err, load.ErrRefused) || len(seen) == 0 || seen[0] != "Bearer s3cret" {
		t.Errorf("%v; credentials %q", err, seen)
	}
	if strings.Contains(said.String()+err.Error(), "s3cret") {
		t.Errorf("the token is told: %s, %v", &said, err)
	}
}

func TestFlags(t *testing.T) {
	for name, args := range map[string][]string{
		"--mode":        {"--url=http://127.0.0.1:1", "--mode=sdk"},
		"--nats":        {"--nats=nats://127.0.0.1:1"},
		"--pid":         {"--pid=1"},
		"--agentstream": {"--url=http://127.0.0.1:1", "--agentstream=/nowhere/agentstream"},
		"--token-file":  {"--url=http://127.0.0.1:1", "--token-file=/nowhere/token"},
	} {
		if err := flags(t, args...).run(t.Context(), io.Discard, io.Discard); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%q: error %v does not name %s", args, err, name)
		}
	}
	cfg, err := flags(t, "--url=http://h/", "--rate=-1", "--scenario=s4", "--transport=ws", "--admin=h:1").config()
	if err != nil || cfg.URL != "http://h" || cfg.Rate != -1 || cfg.Scenario != load.Replay ||
		cfg.Transport != load.WebSocket || cfg.Probe == nil {
		t.Errorf("%+v, %v", cfg, err)
	}
}
