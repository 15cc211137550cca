// Package cli is what commands share: flags, standard streams, and the client of a server.
//
// # What it is
//
// ServerFlags, NATSFlags, PostgresFlags and LayoutFlags are embedded in commands. Streams are where a command reads and
// writes. ParseSince and ParseSize read values of flags. Pacer holds events back by their own times.
//
// # Contract
//
// Errors name the flag that is wrong. No error and no log line holds a credential.
//
// # Concurrency
//
// Values are for one command, which runs in one goroutine, unless a comment says otherwise.
//
// # What it does not do
//
// It has no command of its own, and it does not read the configuration file: see config.go of the command.
//
// # Where to look next
//
// flags.go for the flags; client.go for how a client is made of them.
package cli
