package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"agentstream/cmd/agentstream/internal/cli"
)

// VersionCmd prints what this binary is made of.
type VersionCmd struct {
	cli.Streams `kong:"-"`
}

// Run prints the versions of the program, of Go, and of the broker's server and client, which decide
// what an acknowledgement means.
func (c *VersionCmd) Run(context.Context) error {
	w := tabwriter.NewWriter(c.Stdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "agentstream\t%s\n", cli.Version())
	fmt.Fprintf(w, "go\t%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	deps := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			deps[d.Path] = d.Version
		}
	}
	for _, d := range []struct{ name, path string }{
		{"nats-server", "github.com/nats-io/nats-server/v2"},
		{"nats.go", "github.com/nats-io/nats.go"},
	} {
		v := deps[d.path]
		if v == "" {
			v = "not linked in"
		}
		fmt.Fprintf(w, "%s\t%s\n", d.name, v)
	}
	return w.Flush()
}
