package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"

	"agentstream/cmd/agentstream/internal/process"
)

// Ports are where a role is served.
type Ports struct {
	Clients   net.Listener // nil: there are none
	operators *process.Operators
}

// Bind opens the ports. Nobody is answered yet. That the embedded NATS will get its own, nats, is only tried, because
// it binds that one itself; "": it has none. Where the operators' port is in use and SpareAdmin is set, they get that
// one.
func (f *ListenFlags) Bind(ctx context.Context, nats string, m *process.Metrics, log *slog.Logger) (p *Ports,
	err error) {
	p = new(Ports)
	if f.Listen != "" {
		if p.Clients, err = process.Listen(ctx, "--listen", f.Listen); err != nil {
			return nil, err
		}
	}
	p.operators, err = process.OpenOperators(ctx, f.AdminListen, f.AdminFlags, m, log)
	if errors.Is(err, syscall.EADDRINUSE) && f.SpareAdmin != "" {
		p.operators, err = process.OpenOperators(ctx, f.SpareAdmin, f.AdminFlags, m, log)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	if at := p.operators.Addr(); at != "" {
		f.AdminListen = at
	}
	if nats == "" {
		return p, nil
	}
	ln, err := process.Listen(ctx, "--nats-listen", nats)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, ln.Close() // nobody has connected
}

// Close closes those that nobody serves yet, and does nothing to those that were served.
func (p *Ports) Close() {
	if p.Clients != nil {
		_ = p.Clients.Close() // whoever served it has closed it
	}
	if p.operators != nil {
		p.operators.Close()
	}
}

// AddAdmin puts the operators' listeners into the last stage: a drain is when one wants to look.
func (p *Ports) AddAdmin(stages [][]process.Part, a *process.Admin) {
	last := len(stages) - 1
	stages[last] = append(stages[last], p.operators.Parts(a)...)
}
