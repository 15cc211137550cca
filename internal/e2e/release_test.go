//go:build release

package e2e_test

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const releaseVersion, releaseName = "v0.0.1", "agentstream_v0.0.1_linux_amd64"

// output runs a command in a folder and returns what it prints.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// release makes a release for linux/amd64 of a clone of this tree, as it is committed, and returns the clone and its
// dist.
func release(t *testing.T) (clone, dist string) {
	t.Helper()
	clone = filepath.Join(t.TempDir(), "clone")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	output(t, ".", "git", "clone", "-q", root, clone)
	if err := os.Symlink(filepath.Join(root, "clients/ts/node_modules"),
		filepath.Join(clone, "clients/ts/node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, pyClient[len("../../"):], ".venv"),
		filepath.Join(clone, "clients/python/.venv")); err != nil {
		t.Fatal(err)
	}
	output(t, clone, "make", "release", "VERSION="+releaseVersion, "SYSTEMS=linux/amd64")
	return clone, filepath.Join(clone, "dist")
}

// TestRelease: two releases of one revision have the same bytes, and what is in one is what its users are told.
func TestRelease(t *testing.T) {
	clone, dist := release(t)
	_, again := release(t)
	files, err := os.ReadDir(dist)
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		one, err1 := os.ReadFile(filepath.Join(dist, f.Name()))
		two, err2 := os.ReadFile(filepath.Join(again, f.Name()))
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
			t.Errorf("%s is not the same in both: %v, %v", f.Name(), err1, err2)
		}
	}
	output(t, dist, "sha256sum", "--check", "--strict", "SHA256SUMS")
	unpacked := t.TempDir()
	output(t, unpacked, "tar", "-xzf", filepath.Join(dist, releaseName+".tar.gz"), "--strip-components=1")
	program := filepath.Join(unpacked, "agentstream")
	if got := output(t, unpacked, program, "--version"); got != "agentstream "+releaseVersion {
		t.Errorf("its version is %q", got)
	}
	for _, page := range []string{"README.md", "CHANGELOG.md", "docs/README.md"} {
		if _, err := os.Stat(filepath.Join(unpacked, page)); err != nil {
			t.Error(err)
		}
	}
	static(t, program)
	parts(t, program, filepath.Join(dist, releaseName+".cdx.json"), output(t, clone, "git", "rev-parse", "HEAD"))
	installs(t, dist)
	installsPython(t, dist)
}

// static holds that a program needs no loader and no library.
func static(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, _ := f.ImportedLibraries() // a program without a dynamic section has an error
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) || len(libraries) > 0 {
		t.Errorf("it is not static: %v", libraries)
	}
}

// parts holds that the program names its revision, and the list of parts all its modules.
func parts(t *testing.T, program, list, revision string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(info.Settings, debug.BuildSetting{Key: "vcs.revision", Value: revision}) {
		t.Errorf("it does not name %s: %v", revision, info.Settings)
	}
	var sbom struct {
		Format     string `json:"bomFormat"`
		Components []struct{ Name, Version string }
	}
	text, err := os.ReadFile(list)
	if err == nil {
		err = json.Unmarshal(text, &sbom)
	}
	if err != nil || sbom.Format != "CycloneDX" || len(sbom.Components) < len(info.Deps) {
		t.Fatalf("%q, %d components for %d modules: %v", sbom.Format, len(sbom.Components), len(info.Deps), err)
	}
	for _, m := range info.Deps {
		if !slices.Contains(sbom.Components, struct{ Name, Version string }{m.Path, m.Version}) {
			t.Errorf("%s %s is not in the list of parts", m.Path, m.Version)
		}
	}
}

// installs holds that the npm package can be installed into an empty project, and that its types are found.
func installs(t *testing.T, dist string) {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(dist, "agentstream-*.tgz"))
	if err != nil || len(packs) != 1 {
		t.Fatal(packs, err)
	}
	project := t.TempDir()
	files := map[string]string{
		"package.json": `{"name":"project","version":"1.0.0","type":"module"}`,
		"good.ts":      "import { Client, Fold } from \"agentstream\";\nconst state: string | null = new Fold().snapshot.state;\nnew Client({ url: String(state) });\n",
		"bad.ts":       "import { Client } from \"agentstream\";\nnew Client({ url: 7 });\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output(t, project, "npm", "install", "--offline", "--no-audit", "--no-fund", packs[0])
	tsc, err := filepath.Abs("../../clients/ts/node_modules/.bin/tsc")
	if err != nil {
		t.Fatal(err)
	}
	check := []string{"--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"}
	output(t, project, tsc, append(check, "good.ts")...)
	cmd := exec.CommandContext(t.Context(), tsc, append(check, "bad.ts")...)
	cmd.Dir = project
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "'number' is not assignable") {
		t.Errorf("a wrong type is taken: %v %s", err, out)
	}
	output(t, project, "node", "--input-type=module", "--eval",
		`import { Client } from "agentstream"; new Client({ url: "http://127.0.0.1:1" });`)
}

// installsPython holds that the wheel can be installed into an empty environment, says its version, and is typed.
func installsPython(t *testing.T, dist string) {
	t.Helper()
	wheel := filepath.Join(dist, "agentstream-"+strings.TrimPrefix(releaseVersion, "v")+"-py3-none-any.whl")
	env := t.TempDir()
	output(t, env, "python3", "-m", "venv", ".")
	output(t, env, "bin/pip", "install", "--quiet", "--disable-pip-version-check", wheel)
	got := output(t, env, "bin/python", "-c",
		"import agentstream, os; print(agentstream.__version__, os.listdir(os.path.dirname(agentstream.__file__)).count('py.typed'))")
	if got != strings.TrimPrefix(releaseVersion, "v")+" 1" {
		t.Errorf("the wheel says %q", got)
	}
}
