package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
)

// SetupCmd looks for what is set up wrongly, and compares the log with the archive where it is told where that is.
type SetupCmd struct {
	archive.DoctorCmd
	PublicURL   string        `name:"public-url" help:"How clients reach the edges: a stream is opened there, through whatever is in front." env:"AGENTSTREAM_PUBLIC_URL" placeholder:"URL"`
	Token       string        `help:"Credential with the scope read, for --public-url." env:"AGENTSTREAM_TOKEN" placeholder:"TOKEN"`
	Patience    time.Duration `help:"How long the stream must stay open: longer than the edges' --keep-alive." default:"40s"`
	NATSRole    string        `name:"nats-role" help:"The role whose NATS user --nats has, and whose rights are looked at: edge, persist, worker, proxy, migrate, tap or backup. Default: the one of the user's name." enum:"edge,persist,worker,proxy,migrate,tap,backup," default:"" env:"AGENTSTREAM_NATS_ROLE"`
	NATSMonitor []string      `name:"nats-monitor" help:"Monitoring addresses of all NATS servers, http://HOST:8222: how they sync is seen there alone." env:"AGENTSTREAM_NATS_MONITOR" placeholder:"URL"`
	APIKeys     string        `name:"api-keys" help:"The edges' file of API keys." type:"path" env:"AGENTSTREAM_API_KEYS" placeholder:"FILE"`
	TLSCert     []string      `name:"tls-cert" help:"Files of certificates that are in use." type:"path" env:"AGENTSTREAM_TLS_CERT" placeholder:"FILE"`
	Issuer      string        `name:"oidc-issuer" help:"The edges' issuer of tokens." env:"AGENTSTREAM_OIDC_ISSUER" placeholder:"URL"`
	Encrypt     []string      `help:"Tenants whose content the edges encrypt: their keys are asked for." env:"AGENTSTREAM_ENCRYPT" placeholder:"TENANT,…"`
	cli.KeyFlags
	Soon time.Duration `help:"What ends within this time is a finding." default:"336h"`
}

// Run prints what was found; the error reports that something was.
func (c *SetupCmd) Run(ctx context.Context, log *slog.Logger) error {
	x := &examination{soon: c.Soon, now: time.Now, role: c.NATSRole}
	if c.PublicURL != "" {
		x.front(ctx, c.PublicURL, c.Token, c.Patience)
	}
	x.servers(ctx, c.NATSMonitor)
	x.keys(c.APIKeys)
	for _, path := range c.TLSCert {
		x.certificate(path)
	}
	x.issuer(ctx, c.Issuer)
	x.sealing(ctx, c.Encrypt, &c.KeyFlags)
	x.objects(ctx, c.BlobFlags.Beside(c.Data))
	if c.Postgres != "" {
		x.tables(ctx, c.Postgres)
	}
	if c.Postgres == "" && c.Data == "" { // nothing to compare the log with
		return x.report(ctx, c, log)
	}
	c.Outside = func(ctx context.Context, nc *nats.Conn) []string {
		x.rights(ctx, nc)
		return x.found
	}
	err := c.DoctorCmd.Run(ctx, log)
	if err != nil && !errors.Is(err, archive.ErrFindings) { // it did not come as far as to print them
		x.print(c)
	}
	return err
}

// report looks at what is left where there is no archive, and prints the findings.
func (x *examination) report(ctx context.Context, c *SetupCmd, log *slog.Logger) error {
	nc, err := c.Dial("doctor", log)
	if err != nil {
		x.find("NATS cannot be reached: %v; mend: --nats, --nats-creds, --nats-ca", err)
	} else {
		x.rights(ctx, nc)
		x.streams(ctx, nc)
		nc.Close()
	}
	if c.JSON {
		if err := c.Print(true, map[string][]string{"wrong": append([]string{}, x.found...)}, ""); err != nil {
			return err
		}
	} else {
		x.print(c)
	}
	if len(x.found) > 0 {
		return archive.ErrFindings
	}
	return nil
}

func (x *examination) print(c *SetupCmd) {
	for _, text := range x.found {
		fmt.Fprintln(c.Stdout(), "WRONG: "+text)
	}
}

// examination collects findings.
type examination struct {
	found []string
	soon  time.Duration
	now   func() time.Time
	role  string // of the NATS user; "": the one of its name
}

// find adds a finding: what is wrong, and after "; mend:" what to do.
func (x *examination) find(format string, args ...any) {
	x.found = append(x.found, fmt.Sprintf(format, args...))
}

// apart is how far clocks may be apart.
const apart = 2 * time.Second

// clock compares the clock of somebody else, who told it between two moments.
func (x *examination) clock(who string, theirs, before, after time.Time, grain time.Duration) {
	early, late := before.Add(-apart-grain), after.Add(apart+grain)
	if theirs.Before(early) || theirs.After(late) {
		x.find("the clock of %s is %v away from this one; mend: time synchronisation (chrony) on both", who,
			theirs.Sub(before).Round(time.Second))
	}
}

// expiry adds a finding for what expires soon, or has expired.
func (x *examination) expiry(what string, at time.Time, mend string) {
	switch left := at.Sub(x.now()); {
	case left <= 0:
		x.find("%s has expired on %s; mend: %s", what, at.UTC().Format(time.DateOnly), mend)
	case left < x.soon:
		x.find("%s expires on %s; mend: %s", what, at.UTC().Format(time.DateOnly), mend)
	}
}
