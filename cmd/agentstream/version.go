package main

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"

	"agentstream/cmd/agentstream/internal/cli"
)

// VersionCmd prints what this binary is made of.
type VersionCmd struct {
	JSON        bool `name:"json" help:"Print one JSON object."`
	cli.Streams `kong:"-"`
}

// Run prints the versions of the program, of Go, and of the broker's server and client, which decide
// what an acknowledgement means.
func (c *VersionCmd) Run(context.Context) error {
	deps := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			deps[d.Path] = d.Version
		}
	}
	v := struct {
		Agentstream string `json:"agentstream"`
		Go          string `json:"go"`
		NATSServer  string `json:"nats-server"`
		NATSClient  string `json:"nats.go"`
	}{cli.Version(), runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		cmp.Or(deps["github.com/nats-io/nats-server/v2"], "not linked in"),
		cmp.Or(deps["github.com/nats-io/nats.go"], "not linked in")}
	return c.Print(c.JSON, v, "agentstream  %s\ngo           %s\nnats-server  %s\nnats.go      %s", v.Agentstream, v.Go,
		v.NATSServer, v.NATSClient)
}
