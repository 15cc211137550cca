package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The TypeScript client does all that it can against both roles that serve, over fetch and over
// WebSocket: its fold is the server's, and a snapshot, a filter or a replay leaves nothing unexplained.
func TestTypeScriptClientAgainstTheServer(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	t.Run("dev", func(t *testing.T) {
		p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
		p.start()
		useAPI(t, node, p, "")
	})
	t.Run("edge", func(t *testing.T) { useAPI(t, node, edgesFor(t, "http://127.0.0.1:1").edges[0], edgeToken) })
}

func useAPI(t *testing.T, node string, p *proc, token string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node, "api.mjs")
	cmd.Dir = jsDir
	cmd.Env = append(os.Environ(), "SERVER="+p.url(""), "TOKEN="+token)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Fatalf("%v\n%s", err, tail(string(out), 4000))
	}
}

// All clients reproduce the same goldens: each scenario's snapshot has its events beside it.
func TestGoldensOfSnapshotsAreComplete(t *testing.T) {
	snapshots, err := filepath.Glob("../../schema/testdata/snapshots/*.json")
	if err != nil || len(snapshots) < 15 {
		t.Fatalf("%d snapshots, %v", len(snapshots), err)
	}
	for _, s := range snapshots {
		if _, err := os.Stat(s + "l"); err != nil {
			t.Error(err)
		}
	}
}
