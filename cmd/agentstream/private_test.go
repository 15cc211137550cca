//go:build unix

package main

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentstream/internal/testkit"
)

// TestDevIsPrivate: whatever the umask, what dev stores is readable by its owner alone, also in a folder that is open
// to all and after a program that left it open. Its operators' address is not asked by names that were pointed here.
func TestDevIsPrivate(t *testing.T) {
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{"first", "again"} {
		t.Run(start, func(t *testing.T) {
			at, admin := testkit.FreeAddr(t), testkit.FreeAddr(t)
			dev(t, "curl", "--no-demo", "--data", data, "--listen", at, "--admin-listen", admin)
			resp, err := http.Post("http://"+at+"/v1/agent/runs/r/events", "application/json",
				strings.NewReader(`{"type":"run.lifecycle","payload":{"state":"running"}}`))
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
			for _, addr := range []string{at, admin} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", nil)
				if err != nil {
					t.Fatal(err)
				}
				if addr == at {
					req.URL.Path = "/v1/agent/runs/r"
				}
				req.Host = "pointed.example:8081"
				if resp, err = http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s by a name that was pointed here: %v %v", addr, resp, err)
				}
				_ = resp.Body.Close()
			}
			http.DefaultClient.CloseIdleConnections()
			holdPrivate(t, data)
		})
		// As a program before this one, or a copy, may have left it.
		err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			return os.Chmod(path, 0o644)
		})
		if err := os.Chmod(filepath.Join(data, "nats"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// holdPrivate holds that nobody else reads a file: by its own mode, or by that of a folder around it.
func holdPrivate(t *testing.T, root string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || path == root {
			return err
		}
		if d.Name() == "lock" { // it holds the id of a process
			return nil
		}
		if d.IsDir() && info.Mode().Perm()&0o077 == 0 {
			files++
			return filepath.SkipDir
		}
		if files++; info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || files < 4 {
		t.Errorf("%d files, %v", files, err)
	}
}
