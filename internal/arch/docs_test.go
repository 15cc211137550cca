package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDependenciesAreDecided: decision 0008 has a line for each direct dependency of go.mod, and for no other; the
// module of the benchmarks has no dependency beside the product's, and the same versions.
func TestDependenciesAreDecided(t *testing.T) {
	t.Chdir(root)
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/decisions/0008-dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	decided := make(map[string]int)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		decided[m[1]]++
	}
	direct := regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1)
	if len(direct) < 20 {
		t.Fatalf("only %d direct dependencies were found", len(direct))
	}
	for _, m := range direct {
		name := strings.TrimPrefix(m[1], "github.com/")
		if decided[name] != 1 {
			t.Errorf("decision 0008 has %d lines for %s", decided[name], name)
		}
		delete(decided, name)
	}
	for name := range decided {
		t.Errorf("decision 0008 has a line for %s, which is no direct dependency", name)
	}
	bench, err := os.ReadFile("bench/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+ v\S+)$`).FindAllStringSubmatch(string(bench), -1) {
		if m[1] != "agentstream v0.0.0" && !strings.Contains(string(mod), "\t"+m[1]+"\n") {
			t.Errorf("bench/go.mod has %s, go.mod has not", m[1])
		}
	}
}

// TestFiguresAgree holds figures that stand on several pages against each other. Decisions and the changelog say what
// was so when they were written, and are left out.
func TestFiguresAgree(t *testing.T) {
	t.Chdir(root)
	figures := []struct {
		what, want string
		says       string // the one group is the figure
		pages      int    // at least so many name it
	}{
		{"a pack's bytes", "768 KiB", `1,024(?: events,?| of them,)?(?: and|,| or)? (\d+ KiB)`, 3},
		{"an event", "512 KiB", `\b[Aa]n event(?: is| over)?(?: at most)? (\d+ KiB)`, 2},
		{"a body", "8 MiB", `\bbody (?:over )?(\d+ MiB)`, 3},
		{"a fold", "16 MiB", `\b[Ff]old(?: is)?(?: over)? (\d+ MiB)`, 3},
		{"state of runs that is kept", "128 MiB", `\bstate of runs \(?(?:kept )?(\d+ MiB)|(\d+ MiB)\s+of the state`, 2},
		{"a client's time for 64 KiB", "30", `64 KiB in (\d+) s\b|64 KiB has its own deadline \((\d+) seconds`, 2},
		{"keep-alive", "15", `[Ss]ilence of (\d+) s|(\d+) s of silence|keep-alive comes every (\d+) s`, 3},
		{"the window", "72", `(\d+)h when new|(\d+) hours (?:unless configured|by default)`, 3},
		{"a key", "24", `(\d+) hours (?:and|at any node)|keys for (\d+) hours|within (\d+) hours|characters, (\d+) hours|repeatable for (\d+) hours`, 3},
		{"a takeover of partitions", "ten", `another process within (\w+) seconds|(?:partitions are|leaves is) taken over within (\w+)\W+seconds`, 2},
		{"a run that is done", "90", "kept (\\d+) days from its last event|`done` \\| (\\d+) days|`(\\d+)d`[^|]*\\| how long a run is kept that has ended in state done", 3},
		{"what an idle watcher takes", "5", `An idle stream costs an edge\W+about (\d+) KiB`, 1},
	}
	texts := make(map[string]string)
	err := filepath.WalkDir("docs", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "decisions" {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		pages := 0
		for path, text := range texts {
			all := regexp.MustCompile(f.says).FindAllStringSubmatch(text, -1)
			if len(all) > 0 {
				pages++
			}
			for _, m := range all {
				if got := strings.Join(m[1:], ""); got != f.want {
					t.Errorf("%s: %s is %s, said is %q", path, f.what, f.want, m[0])
				}
			}
		}
		if pages < f.pages {
			t.Errorf("%s: %d pages name it, want %d: the pattern is out of date", f.what, pages, f.pages)
		}
	}
}

// TestLinks: what a page names by a relative link is there, and so is the heading that it names.
func TestLinks(t *testing.T) {
	t.Chdir(root)
	pages := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "clients/ts/README.md",
		"schema/contracts/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "examples/*/*.md", "examples/*/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			seen++
			path, heading, _ := strings.Cut(m[1], "#")
			at := filepath.Join(filepath.Dir(page), path)
			if path == "" {
				at = page
			}
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s: %s is not there", page, m[1])
			} else if heading != "" && filepath.Ext(at) == ".md" && !headingsOf(t, at)[heading] {
				t.Errorf("%s: %s has no such heading", page, m[1])
			}
		}
	}
	if seen < 200 {
		t.Errorf("only %d links were found", seen)
	}
}

// headingsOf returns the names by which links lead to the headings of a page.
func headingsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}\s_-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		name = strings.ReplaceAll(name, " ", "-")
		for n := 1; names[name]; n++ { // the second of that name
			name = strings.TrimSuffix(name, fmt.Sprint("-", n-1)) + fmt.Sprint("-", n)
		}
		names[name] = true
	}
	return names
}

// TestTargets: what a page says to make is a target, and the everyday targets fit on a page.
func TestTargets(t *testing.T) {
	t.Chdir(root)
	targets := make(map[string]bool)
	files, err := filepath.Glob("tools/make/*.mk")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "Makefile") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if file == "Makefile" && len(text) > 5000 {
			t.Errorf("Makefile has %d bytes: long proofs and measurements belong into tools/make", len(text))
		}
		for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(text), -1) {
			targets[m[1]] = true
		}
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)(?:`|^\\$ |^)make ([a-z]+(?:-[a-z]+)*)(?:`| [A-Z]|\\s+#)").FindAllStringSubmatch(string(text), -1) {
			said++
			if !targets[m[1]] {
				t.Errorf("%s: there is no target %s", page, m[1])
			}
		}
	}
	if said < 20 {
		t.Errorf("only %d targets were found in the pages", said)
	}
}
