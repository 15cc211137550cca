package completion

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"agentstream/cmd/agentstream/internal/cli"
)

// Hook is the first argument with which the scripts call the program.
const Hook = "__complete"

//go:embed agentstream.*
var scripts embed.FS

// ScriptCmd prints the script of a shell.
type ScriptCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish. bash: source <(agentstream completion bash)."`

	cli.Streams `kong:"-"`
}

// Run prints the script.
func (c *ScriptCmd) Run() error {
	text, err := scripts.ReadFile("agentstream." + c.Shell)
	if err != nil {
		return err
	}
	_, err = c.Stdout().Write(text)
	return err
}

// Print writes what may stand in the place of the last word, after those before it.
func Print(w io.Writer, root *kong.Node, words []string) {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	current := ""
	if len(words) > 0 {
		current = words[len(words)-1]
		words = words[:len(words)-1]
	}
	if flag, value, ok := strings.Cut(current, "="); ok { // --log=te; bash makes three words of it
		words, current = append(words, flag), value
	}
	at, waiting, places := walk(root, words)
	switch {
	case waiting != nil:
		values(w, waiting.Value, current)
	case strings.HasPrefix(current, "-"):
		for _, group := range at.AllFlags(true) {
			for _, f := range group {
				offer(w, "--"+f.Name, f.Help, current)
				if f.Tag.Negatable != "" {
					offer(w, "--no-"+f.Name, "Not: "+f.Help, current)
				}
			}
		}
	case len(at.Children) > 0:
		for _, n := range at.Children {
			if !n.Hidden {
				offer(w, n.Name, n.Help, current)
			}
		}
	case len(at.Positional) > 0:
		values(w, at.Positional[min(places, len(at.Positional)-1)], current)
	}
}

// walk follows the words. It returns the command, the flag whose value comes next, and how many arguments there are.
func walk(at *kong.Node, words []string) (node *kong.Node, waiting *kong.Flag, places int) {
	for _, word := range words {
		switch {
		case word == "=":
		case waiting != nil:
			waiting = nil
		case strings.HasPrefix(word, "-"):
			if !strings.Contains(word, "=") {
				waiting = flagOf(at, word)
			}
		default:
			i := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == word || slices.Contains(n.Aliases, word) })
			if i >= 0 {
				at = at.Children[i]
			} else {
				places++
			}
		}
	}
	return at, waiting, places
}

// flagOf returns the flag that takes the next word as its value; nil for one that takes none.
func flagOf(at *kong.Node, word string) *kong.Flag {
	for _, group := range at.AllFlags(false) {
		for _, f := range group {
			if (word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)) && !f.IsBool() {
				return f
			}
		}
	}
	return nil
}

func values(w io.Writer, v *kong.Value, current string) {
	for _, one := range v.EnumSlice() {
		if one != "" {
			offer(w, one, "", current)
		}
	}
}

func offer(w io.Writer, word, help, current string) {
	if strings.HasPrefix(word, current) {
		fmt.Fprintf(w, "%s\t%s\n", word, help)
	}
}
