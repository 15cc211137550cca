package process

import (
	"context"
	"log/slog"
	"net"

	"agentstream/edge"
	"agentstream/edge/secure"
)

// AdminFlags say how operators and their probes ask.
type AdminFlags struct {
	AdminHost    []string `help:"A name by which --admin-listen is asked, besides addresses, names without a dot and names that are not of public DNS." env:"AGENTSTREAM_ADMIN_HOST" placeholder:"NAME"`
	AdminTLS     TLSFlags `embed:"" prefix:"admin-tls-" envprefix:"AGENTSTREAM_ADMIN_TLS_"`
	HealthListen string   `help:"Address for health alone, /healthz and /readyz without reasons, for probes: it may be one that others reach. Without TLS." env:"AGENTSTREAM_HEALTH_LISTEN" placeholder:"HOST:PORT"`
}

// Operators are the listeners of those who run a process. One that is not wanted is nil.
type Operators struct {
	admin, health net.Listener
	hosts         []string
	tls           *secure.Files
}

// OpenOperators opens the listeners. Nobody is answered yet. listen is --admin-listen.
func OpenOperators(ctx context.Context, listen string, f AdminFlags, m *Metrics, log *slog.Logger) (*Operators, error) {
	o := &Operators{hosts: f.AdminHost}
	if host, _, err := net.SplitHostPort(listen); err == nil {
		o.hosts = append(o.hosts[:len(o.hosts):len(o.hosts)], host)
	}
	var err error
	if o.tls, err = f.AdminTLS.Open("admin-tls", m, log); err != nil {
		return nil, err
	}
	if listen != "" && listen != "off" {
		if o.admin, err = Listen(ctx, "--admin-listen", listen); err != nil {
			return nil, err
		}
	}
	if f.HealthListen != "" {
		if o.health, err = Listen(ctx, "--health-listen", f.HealthListen); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// Addr returns the address of --admin-listen, "" when it is off.
func (o *Operators) Addr() string {
	if o.admin == nil {
		return ""
	}
	return o.admin.Addr().String()
}

// Close closes what nobody serves yet, and does nothing to what was served.
func (o *Operators) Close() {
	for _, ln := range []net.Listener{o.admin, o.health} {
		if ln != nil {
			_ = ln.Close() // whoever served it has closed it
		}
	}
}

// Parts serve the listeners. They belong into the last stage: a drain is when one wants to look.
func (o *Operators) Parts(a *Admin) (parts []Part) {
	a.hosts = o.hosts
	if o.admin != nil {
		if o.tls != nil {
			a.Checks = append(a.Checks[:len(a.Checks):len(a.Checks)], CertificateCheck("admin certificate", o.tls))
		}
		parts = append(parts, Part{Name: "admin", Run: func(ctx context.Context) error {
			return a.serve(ctx, o.admin, a.handler(), o.tls)
		}})
	}
	a.checker = edge.NewChecker(a.Checks)
	if o.health != nil {
		parts = append(parts, Part{Name: "health", Run: func(ctx context.Context) error {
			return a.serveHealth(ctx, o.health)
		}})
	}
	return parts
}
