// Package edgetest runs edges for the tests of protocols and of the edge's own folders.
//
// # What it is
//
// [Share] makes what nodes have in common: a log in memory, keys of requests, tickets. [Nodes.Start] runs a node on it,
// over the network or over [Pipes], and ends it with its test. [Node.Do] asks it; [Node.Say] writes as an agent would.
//
// [NewHouse] is a server of the native protocol alone, on a log that can be told to fail ([FaultyLog]). [House.Tap]
// holds a stream open over any transport, [House.Watch] reads one over SSE, [House.Dial] over WebSocket, [House.Talk]
// and [House.Feed] speak the sample.
//
// # Contract
//
// Callers are named by a header ([As]), as [ByHeader] has it. Nothing is left when a test has ended.
//
// # Concurrency
//
// A node may be used by several goroutines; those that a test does not own must not fail it (Node.Append returns
// errors).
//
// # What it does not do
//
// It knows no protocol but the native one, which all nodes speak beside that of the test. What answers of the others
// look like it reads in the description that a server gives of its routes ([Do], [Main]).
//
// # Where to look next
//
// protocols/metis/serve and protocols/langgraph/serve have tests that stand on it.
package edgetest
