// Package jsonscan reads JSON where it lies, without decoding it, and writes it.
//
// # What it is
//
// [SkipValue], [Members], [Elements] and [Fields] take apart what is known to be valid. [Valid], [ScanValue] and
// [ScanString] check what is not. [DecodeString] and [AppendDecoded] read and write strings so that half a surrogate
// pair is kept, [Unescape] and [Split] take inner bytes. [Sum] compares texts that were escaped or cut in different
// ways. An [Object] is written member by member.
//
// # Contract
//
// Results are parts of the argument's bytes, except for strings. Valid accepts what
// encoding/json accepts, if it is valid UTF-8 and not nested too deep.
//
// # Concurrency
//
// Functions keep no state. A Fields belongs to one goroutine at a time.
//
// # What it does not do
//
// It does not know events, and does not report what is wrong with a text: encoding/json does.
//
// # Where to look next
//
// schema/decode.go checks what comes from outside; schema/assemble and schema/fold.go read payloads.
package jsonscan
