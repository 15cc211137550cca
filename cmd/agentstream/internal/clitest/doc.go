// Package clitest has what tests of several commands share.
//
// # What it is
//
// StandIn answers like the edge, with runs in memory and faults on demand. Program builds the binary. The rest writes
// files and waits.
//
// # Contract
//
// A StandIn ends with its test. Helpers fail the test that calls them.
//
// # Concurrency
//
// A StandIn serves requests at the same time; its fields are set before, or with Mu locked.
//
// # What it does not do
//
// It is no second implementation of the server: what is tested against it is the client.
//
// # Where to look next
//
// server.go for what StandIn answers.
package clitest
