package natsjs

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"agentstream/edge/limits"
	"agentstream/internal/natskit"
)

// Bus is the connection of one edge, on natskit.LimitsSubject.
type Bus struct{ nc *nats.Conn }

var _ limits.Bus = Bus{}

// NewBus returns the bus on a connection.
func NewBus(nc *nats.Conn) Bus { return Bus{nc} }

// Publish sends a message, if there is a connection.
func (b Bus) Publish(message []byte) error {
	if !b.nc.IsConnected() { // what waits would come late, and count as of then
		return fmt.Errorf("natsjs: limits: %w", nats.ErrDisconnected)
	}
	if err := b.nc.Publish(natskit.LimitsSubject, message); err != nil {
		return fmt.Errorf("natsjs: limits: %w", err)
	}
	return nil
}

// Subscribe receives what others publish, and what is published here.
func (b Bus) Subscribe(receive func(message []byte)) (stop func(), err error) {
	sub, err := b.nc.Subscribe(natskit.LimitsSubject, func(m *nats.Msg) { receive(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("natsjs: limits: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only when the connection is gone, and the interest with it
}
