//go:build !race

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUsage runs the program as people do who look for their way.
func TestUsage(t *testing.T) {
	_, call := program(t)
	overview, _, _ := call(nil, "help")
	for _, args := range [][]string{nil, {"--help"}} {
		if out, _, status := call(nil, args...); out != overview || status != 0 {
			t.Errorf("%v: status %d, differs from help:\n%s", args, status, out)
		}
	}
	at := 0
	for _, heading := range []string{"\nServer:", "\nWatch and control:", "\nKeep:", "\nOperate:", "\nThis program:"} {
		i := strings.Index(overview, heading)
		if i < at {
			t.Errorf("heading %q is missing or out of order in\n%s", heading, overview)
		}
		at = i
	}
	for _, c := range []struct {
		env    []string
		args   []string
		out    string
		err    string
		status int
	}{
		{nil, []string{"help", "run", "pause"}, "Usage: agentstream run pause <run>", "", 0},
		{nil, []string{"help", "pause"}, "Usage: agentstream pause <run>", "", 0},
		{nil, []string{"help", "nothing"}, "", "there is no command or argument nothing", 2},
		{nil, []string{"--version"}, "agentstream ", "", 0},
		{nil, []string{"version", "--json"}, `"nats-server":"`, "", 0},
		{nil, []string{"rns"}, "", `did you mean one of "run", "runs"?`, 2},
		{nil, []string{"tail"}, "", "Run agentstream tail --help for usage.", 2},
		{nil, []string{"run", "list", "--server", "http://127.0.0.1:1"}, "",
			"is the server running at http://127.0.0.1:1? (--server)", 1},
		{nil, []string{"pause", "r1", "--server", "http://127.0.0.1:1"}, "",
			"is the server running at http://127.0.0.1:1? (--server)", 1},
		{nil, []string{"demo", "--server", "http://127.0.0.1:1"}, "",
			"is the server running at http://127.0.0.1:1? (--server)", 1},
		{nil, []string{"run", "ls", "--nothing"}, "", "Run agentstream run list --help for usage.", 2},
		{nil, []string{"run", "say", "r1", "hi", "--server", "http://127.0.0.1:1"}, "",
			"say to run r1: no server at 127.0.0.1:1", 1},
		{nil, []string{"migrate", "--nats", "nats://user:hush@127.0.0.1:1,127.0.0.1:2"}, "",
			"to 127.0.0.1:1, 127.0.0.1:2: ", 1},
		{nil, []string{"archive", "list", "--blobs", "testdata/none"}, "", "testdata/none: no such file", 1},
		{[]string{"AGENTSTREAM_LISEN=x"}, []string{"version"}, "agentstream ",
			"AGENTSTREAM_LISEN is set in the environment, and there is no such setting", 0},
		{[]string{"AGENTSTREAM_LISEN=x"}, []string{"version", "--log", "json"}, "agentstream ",
			`"msg":"AGENTSTREAM_LISEN is set`, 0},
	} {
		out, errs, status := call(c.env, c.args...)
		if !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) || status != c.status || c.err == "" &&
			errs != "" {
			t.Errorf("%v %v: status %d, want %d\n%s\n%s", c.env, c.args, status, c.status, out, errs)
		}
	}
}

// completions are lines that a person types, and what is offered.
var completions = []struct {
	line string
	want []string
}{
	{"agentstream ed", []string{"edge"}},
	{"agentstream run re", []string{"replay", "reject", "resume", "redirect"}},
	{"agentstream run list --jso", []string{"--json"}},
	{"agentstream --log json hold l", []string{"list"}},
	{"agentstream completion z", []string{"zsh"}},
	{"agentstream dev --demo-script pl", []string{"plan"}},
}

// shell runs a script in a shell in which agentstream is the program, and returns its output.
func shell(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no ", name)
	}
	folder, _ := program(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a shell that waits for keys
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	cmd.Env = []string{asProgram + "=1", "PATH=" + folder + ":" + os.Getenv("PATH"), "HOME=" + folder, "TERM=xterm",
		"XDG_CONFIG_HOME=" + folder, "XDG_DATA_HOME=" + folder}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

func TestCompletionBash(t *testing.T) {
	for _, c := range append(completions, completions[0], struct {
		line string
		want []string
	}{"agentstream dev --sync = al", []string{"always"}}) { // bash makes three words of --sync=al
		words := strings.Fields(c.line)
		got := shell(t, "bash", "--norc", "-c", fmt.Sprintf(`source <(agentstream completion bash)
complete -p agentstream >/dev/null
COMP_WORDS=(%s) COMP_CWORD=%d
_agentstream
printf '%%s\n' "${COMPREPLY[@]}"`, strings.Join(words, " "), len(words)-1))
		if !same(strings.Fields(got), c.want) {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	if got := shell(t, "bash", "--norc", "-c",
		`source <(agentstream completion bash); COMP_WORDS=(agentstream "") COMP_CWORD=1; _agentstream; echo "${COMPREPLY[@]}"`); !strings.HasPrefix(got, "dev edge persist ") || strings.Contains(got, " tail ") {
		t.Errorf("nothing typed: %q", got)
	}
}

func same(got, want []string) bool {
	slices.Sort(got)
	return slices.Equal(got, slices.Sorted(slices.Values(want)))
}

func TestCompletionFish(t *testing.T) {
	for _, c := range completions {
		var got []string
		for line := range strings.Lines(shell(t, "fish", "--private", "-c",
			fmt.Sprintf("agentstream completion fish | source; complete -C '%s'", c.line))) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if !same(got, c.want) {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

// TestCompletionZsh presses the tab key in a terminal of its own, which is the only way to complete in zsh.
func TestCompletionZsh(t *testing.T) {
	script := filepath.Join(t.TempDir(), "tab.zsh")
	// A widget hands the line over after the completion.
	text := `zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; autoload -U compinit; compinit -u -D; source <(agentstream completion zsh); show() { print -r -- "LINE<$BUFFER>" }; zle -N show; bindkey "^X" show; print READY$((1+1))'
zpty -r shell out '*READY2*'
zpty -w -n shell "$1"$'\t\C-x'
zpty -r shell out '*LINE<*>*'
print -r -- "$out"
zpty -d shell
`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range completions {
		if len(c.want) > 1 {
			continue // the line becomes longer by nothing
		}
		got := shell(t, "zsh", "-f", script, c.line)
		words := strings.Fields(c.line)
		if want := "LINE<" + strings.Join(append(words[:len(words)-1], c.want[0]), " ") + " >"; !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", c.line, got, want)
		}
	}
}
