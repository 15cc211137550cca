package main

import (
	"context"
	"net"
)

// ports are where a role is served. One that is not wanted is nil.
type ports struct {
	clients net.Listener
	admin   net.Listener
}

// bind opens the ports. Nobody is answered yet. That the embedded NATS will get its own, nats, is only tried,
// because it binds that one itself; "": it has none.
func (f *ListenFlags) bind(ctx context.Context, nats string) (*ports, error) {
	var p ports
	for _, one := range []struct {
		flag, addr string
		into       *net.Listener
	}{{"--listen", f.Listen, &p.clients}, {"--admin-listen", f.AdminListen, &p.admin}, {"--nats-listen", nats, nil}} {
		if one.addr == "" || one.addr == "off" {
			continue
		}
		ln, err := listen(ctx, one.flag, one.addr)
		if err != nil {
			p.close()
			return nil, err
		}
		if one.into == nil {
			_ = ln.Close() // nobody has connected
			continue
		}
		*one.into = ln
	}
	return &p, nil
}

// close closes those that nobody serves yet, and does nothing to those that were served.
func (p *ports) close() {
	for _, ln := range []net.Listener{p.clients, p.admin} {
		if ln != nil {
			_ = ln.Close() // whoever served it has closed it
		}
	}
}

// addAdmin puts the operators' listener into the last stage: a drain is when one wants to look.
func (p *ports) addAdmin(stages [][]part, a *admin) {
	if p.admin == nil {
		return
	}
	last := len(stages) - 1
	stages[last] = append(stages[last], part{"admin", func(ctx context.Context) error { return a.run(ctx, p.admin) }})
}
