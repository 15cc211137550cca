//go:build release

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shims let the page's commands for administrators work on roots of the test's own. The deb's script makes the
// user there.
const shims = `set -euo pipefail
sudo() { "$@"; }
dpkg() { command dpkg --root="$HOME/deb" --force-not-root --force-script-chrootless "$@"; }
rpm() { command rpm --root="$HOME/rpm" --dbpath=/db --nodeps --noscripts "$@" 2>"$HOME/rpm.log"; }
`

// TestInstallPage runs the commands of docs/install.md as they stand there, beside a fresh clone, and looks at
// what the packages installed.
func TestInstallPage(t *testing.T) {
	home := installHome(t)
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```\n").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 9 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	caches := strings.Fields(output(t, ".", "go", "env", "GOMODCACHE", "GOCACHE"))
	env := append(os.Environ(), "HOME="+home, "GOMODCACHE="+caches[0], "GOCACHE="+caches[1], "GOFLAGS=",
		"MAKEFLAGS=", "MAKEOVERRIDES=", "VERSION="+releaseVersion, "SYSTEMS=linux/amd64",
		"npm_config_cache="+output(t, ".", "npm", "config", "get", "cache"))
	for _, block := range blocks {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", shims+block[1])
		cmd.Dir, cmd.Env = home, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s%s", err, block[1], out)
		}
		said := strings.Split(strings.TrimSpace(string(out)), "\n")
		if strings.Contains(block[1], "--version") && !strings.HasPrefix(said[len(said)-1], "agentstream v0.0.") {
			t.Errorf("%s says %q", block[1], out)
		}
	}
	for _, system := range []string{"deb", "rpm"} {
		checkInstalled(t, filepath.Join(home, system))
	}
	passwd, err := os.ReadFile(filepath.Join(home, "deb/etc/passwd"))
	if err != nil || !strings.HasPrefix(string(passwd), "agentstream:x:") {
		t.Errorf("the deb made the users %q, %v", passwd, err)
	}
}

// installHome returns a folder with a clone of this tree, as it is committed, and two empty roots.
func installHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	output(t, ".", "git", "clone", "-q", root, filepath.Join(home, "agentstream"))
	for _, dir := range []string{"deb/var/lib/dpkg", "deb/etc", "rpm"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// checkInstalled starts the program in a root that holds nothing but the package, and has systemd read the units
// there, beside its own targets.
func checkInstalled(t *testing.T, root string) {
	t.Helper()
	got := output(t, root, "chroot", root, "/usr/bin/agentstream", "--version")
	if got != "agentstream "+releaseVersion {
		t.Errorf("%s: the program says %q", root, got)
	}
	files := []string{"etc/agentstream/edge.env", "etc/agentstream/persist.env", "usr/lib/sysusers.d/agentstream.conf"}
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	units := filepath.Join(root, "usr/lib/systemd/system")
	output(t, root, "bash", "-c", "cp -n /usr/lib/systemd/system/*.target /usr/lib/systemd/system/*.slice "+units)
	for _, unit := range []string{"agentstream-edge.service", "agentstream-persist.service"} {
		output(t, root, "systemd-analyze", "verify", "--man=no", "--root="+root, unit)
	}
}
