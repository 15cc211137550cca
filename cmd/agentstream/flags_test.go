package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update", false, "write docs/flags.md")

// flagRow is one line of docs/flags.md: what several commands declare with the same words.
type flagRow struct{ flag, env, def, help string }

// TestFlagsPage compares docs/flags.md with the flags of the program; -update writes the page.
func TestFlagsPage(t *testing.T) {
	const path = "../../docs/flags.md"
	want := flagsPage(shownModel(t))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/flags.md is not what the flags say (go test ./cmd/agentstream -run TestFlagsPage -update writes it)")
	}
}

// TestFlagsAreExplainedRightly: each flag that docs/configure.md explains exists, with the variable and the default
// that the page names.
func TestFlagsAreExplainedRightly(t *testing.T) {
	page, err := os.ReadFile("../../docs/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string][]flagRow)
	for row := range rowsOf(shownModel(t)) {
		name, _, _ := strings.Cut(row.flag, "=")
		byName[name] = append(byName[name], row)
	}
	line := regexp.MustCompile("(?m)^\\| `(--[a-z-\\[\\]]+)[^`|]*` \\| (?:`(AGENTSTREAM_[A-Z_]+)`)? ?\\| (?:`([^`|]*)` )?\\|")
	explained := line.FindAllStringSubmatch(string(page), -1)
	if len(explained) < 60 {
		t.Fatalf("only %d flags are explained", len(explained))
	}
	for _, m := range explained {
		name := strings.Replace(m[1], "--no-", "--[no-]", 1)
		if _, ok := byName[name]; !ok {
			name = m[1]
		}
		holds := func(r flagRow) bool {
			return (m[2] == "" || r.env == m[2]) && (m[3] == "" || r.def == "" || strings.Trim(m[3], "-") == r.def ||
				r.def == "true" || r.def == "false")
		}
		if !slices.ContainsFunc(byName[name], holds) {
			t.Errorf("docs/configure.md explains %s with %q and %q, the program has %q", m[1], m[2], m[3], byName[name])
		}
	}
}

// shownModel is the command line as the help shows it.
func shownModel(t *testing.T) *kong.Application {
	t.Helper()
	parser, err := newParser(new(CLI), &settings{env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	hideShortForms(parser.Model)
	return parser.Model
}

// rowsOf returns the commands that have each flag.
func rowsOf(app *kong.Application) map[flagRow][]string {
	rows := make(map[flagRow][]string)
	for _, f := range app.Flags {
		if f.Name != "help" {
			rows[rowOf(f)] = []string{"all"}
		}
	}
	for _, n := range app.Leaves(true) {
		for _, f := range n.Flags {
			if !f.Hidden && f.Name != "help" {
				rows[rowOf(f)] = append(rows[rowOf(f)], nameOf(n))
			}
		}
		for up := n.Parent; up != nil && up != app.Node; up = up.Parent {
			for _, f := range up.Flags {
				rows[rowOf(f)] = append(rows[rowOf(f)], nameOf(n))
			}
		}
	}
	return rows
}

func nameOf(n *kong.Node) string { return strings.ReplaceAll(n.Path(), " (ls)", "") }

func rowOf(f *kong.Flag) flagRow {
	name := "--" + f.Name
	switch {
	case f.IsBool() && f.Tag.Negatable != "":
		name = "--[no-]" + f.Name
	case !f.IsBool():
		name += "=" + strings.Trim(f.FormatPlaceHolder(), `"`)
		if f.HasDefault && f.PlaceHolder == "" {
			name, _, _ = strings.Cut(name, "=")
		}
	}
	return flagRow{flag: name, env: strings.Join(f.Envs, " "), def: f.Default, help: f.Help}
}

// flagsPage is the text of docs/flags.md.
func flagsPage(app *kong.Application) string {
	var page strings.Builder
	page.WriteString(`# All commands and flags

This page is made from the program: ` + "`go test ./cmd/agentstream -run TestFlagsPage -update`" + ` writes it, and the same test fails when it is out of
date. [configure.md](configure.md) says where values come from and explains what needs more than a line.

## Commands

| command | does |
|---|---|
`)
	for _, n := range app.Leaves(true) {
		fmt.Fprintf(&page, "| `%s` | %s |\n", cell(nameOf(n)+argsOf(n)), cell(n.Help))
	}
	page.WriteString(`
## Flags

By name. A flag that says something else in another command has another line.

| flag | commands | environment | default | |
|---|---|---|---|---|
`)
	rows := rowsOf(app)
	order := func(a, b flagRow) int {
		return cmp.Or(cmp.Compare(strings.Replace(a.flag, "[no-]", "", 1), strings.Replace(b.flag, "[no-]", "", 1)),
			cmp.Compare(a.help, b.help), cmp.Compare(a.def, b.def), cmp.Compare(a.env, b.env))
	}
	for _, row := range slices.SortedFunc(maps.Keys(rows), order) {
		commands := slices.Compact(slices.Sorted(slices.Values(rows[row])))
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", cell(row.flag), strings.Join(commands, ", "),
			code(row.env), code(row.def), cell(row.help))
	}
	return page.String()
}

func argsOf(n *kong.Node) string {
	args := ""
	for _, a := range n.Positional {
		args += " " + a.Summary()
	}
	return args
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}
