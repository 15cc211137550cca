package natskit

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"agentstream/schema"
)

// NeedPayload is how large a message servers must take at least, in bytes: a pack with its headers.
const NeedPayload = schema.MaxPackBytes + 16<<10

// Payload returns how large a message takes the server that a connection is to, in bytes. A server that is told
// another bound does not tell its connections: a new one learns it, and is closed again.
func Payload(nc *nats.Conn, server string) (int64, error) {
	o := nc.Opts
	o.Url, o.Servers = server, nil
	o.AllowReconnect, o.RetryOnFailedConnect = false, false
	o.ConnectedCB, o.ReconnectedCB, o.ClosedCB, o.DisconnectedErrCB, o.AsyncErrorCB = nil, nil, nil, nil, nil
	o.DiscoveredServersCB, o.LameDuckModeHandler = nil, nil
	c, err := o.Connect()
	if err != nil {
		return 0, fmt.Errorf("natskit: ask %s for its largest message: %w", hosts(server), err)
	}
	defer c.Close()
	return c.MaxPayload(), nil
}

// TooSmall is the error of a server that takes no message that is as large as a pack may be.
func TooSmall(server string, most int64) error {
	return fmt.Errorf("the server %s takes messages of at most %d bytes (max_payload), and refuses larger packs: "+
		"let it take %d or more", hosts(server), most, 1<<20)
}

// LearnPayload returns how large a message the connection's server takes now, in bytes. Where the connection believes
// something else it is made anew: what is too large for the server costs the connection, with all that is under way on
// it, and what is too large for a bound that has gone is refused for nothing.
func LearnPayload(nc *nats.Conn) (int64, error) {
	believed := nc.MaxPayload()
	most, err := Payload(nc, nc.ConnectedUrl())
	if err == nil && most != believed && nc.MaxPayload() == believed {
		err = nc.ForceReconnect()
	}
	return most, err
}
