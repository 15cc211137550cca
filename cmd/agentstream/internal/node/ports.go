package node

import (
	"context"
	"net"

	"agentstream/cmd/agentstream/internal/process"
)

// Ports are where a role is served. One that is not wanted is nil.
type Ports struct {
	Clients net.Listener
	admin   net.Listener
	hosts   []string // of admin
}

// Bind opens the ports. Nobody is answered yet. That the embedded NATS will get its own, nats, is only tried,
// because it binds that one itself; "": it has none.
func (f *ListenFlags) Bind(ctx context.Context, nats string) (*Ports, error) {
	p := Ports{hosts: f.AdminHost}
	if host, _, err := net.SplitHostPort(f.AdminListen); err == nil {
		p.hosts = append(p.hosts[:len(p.hosts):len(p.hosts)], host)
	}
	for _, one := range []struct {
		flag, addr string
		into       *net.Listener
	}{{"--listen", f.Listen, &p.Clients}, {"--admin-listen", f.AdminListen, &p.admin}, {"--nats-listen", nats, nil}} {
		if one.addr == "" || one.addr == "off" {
			continue
		}
		ln, err := process.Listen(ctx, one.flag, one.addr)
		if err != nil {
			p.Close()
			return nil, err
		}
		if one.into == nil {
			_ = ln.Close() // nobody has connected
			continue
		}
		*one.into = ln
	}
	if p.admin != nil {
		f.AdminListen = p.admin.Addr().String()
	}
	return &p, nil
}

// Close closes those that nobody serves yet, and does nothing to those that were served.
func (p *Ports) Close() {
	for _, ln := range []net.Listener{p.Clients, p.admin} {
		if ln != nil {
			_ = ln.Close() // whoever served it has closed it
		}
	}
}

// AddAdmin puts the operators' listener into the last stage: a drain is when one wants to look.
func (p *Ports) AddAdmin(stages [][]process.Part, a *process.Admin) {
	if p.admin == nil {
		return
	}
	a.Hosts = p.hosts
	last := len(stages) - 1
	stages[last] = append(stages[last], process.Part{Name: "admin", Run: func(ctx context.Context) error { return a.Run(ctx, p.admin) }})
}
