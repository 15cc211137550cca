// Package localpg finds PostgreSQL's programs on this machine, and the user to run its server as.
//
// # What it is
//
// What tests, measurements and the topology of docker-compose.yml need before they start a server of their own.
//
// # Contract
//
// All programs that are asked for lie in the folder that is given.
//
// # Concurrency
//
// Everything is safe for concurrent use.
//
// # What it does not do
//
// It starts nothing, and is no part of the product.
//
// # Where to look next
//
// internal/testkit starts servers for tests with it.
package localpg
