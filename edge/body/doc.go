// Package body reads the bodies of requests within bounds: of size, of time, and of the memory that all of them may
// take.
//
// # What it is
//
// [Bodies] reads an [Incoming] body and inflates it. A [Share] is what one request holds of the memory for bodies.
//
// # Contract
//
// No memory is taken on a sender's word: space beyond 64 KiB is made once so much has arrived. A tenant may hold as
// much of the memory as it leaves for others, so one alone gets half. What does not fit waits for a while and is
// refused then.
//
// # Concurrency
//
// Bodies is safe for concurrent use. One goroutine uses an Incoming and its Share.
//
// # What it does not do
//
// It does not know what a body says.
//
// # Where to look next
//
// edge/protocol, whose calls read their bodies here.
package body
