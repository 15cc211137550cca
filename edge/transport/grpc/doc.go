// Package grpc carries frames as the messages of a server-streaming gRPC call, and answers unary ones, over
// gRPC (HTTP/2) and gRPC-Web (HTTP/1.1 and HTTP/2), on an ordinary net/http port.
//
// # What it is
//
// A [Transport] serves calls. It reads the one request message and passes the handler its bytes and a
// [Sink]. A frame's data is an encoded message already; the sink puts the five-byte prefix before it
// and writes many in one piece. Connect (connectrpc.com/connect) does the rest of the protocol: headers,
// metadata, deadlines, compression of requests, status and trailers. Handlers returns the standard
// services beside it, server reflection and health, which tell of the services that [Services] names;
// each protocol brings the descriptors of its own.
//
// A [Both] is a call whose client sends many messages. It reads them itself, so that a goroutine which waits for the
// next one has little on its stack.
//
// # Contract
//
// The request message is bounded in size, also when it is compressed, and in time: a call that brings
// no message is ended. An end is sent as a status, with details and trailing metadata; Clean is OK.
// Responses are not compressed.
//
// Every write has a deadline of its own, over at most 64 KiB, as in package sse.
//
// # Concurrency
//
// A Sink belongs to the goroutine of its call. A Transport is safe for concurrent use.
//
// # What it does not do
//
// It knows no services and no messages: protocols encode and decode them. It does not choose what serves a
// path: a call of one that is not there is for Refuse, with status 12. It speaks neither the Connect protocol
// nor gRPC-Web's base64 form. It does not check credentials; Refuse says that others have.
//
// # Where to look next
//
// Package edge, which feeds sinks.
package grpc
