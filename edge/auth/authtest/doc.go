// Package authtest has an issuer of tokens for tests, and the tokens that nobody may accept.
//
// # What it is
//
// An [Issuer] is an OpenID Connect provider in the process: discovery document, key set, keys of
// every kind. [Issuer.Hostile] returns forged, damaged, foreign and outdated tokens.
//
// # Contract
//
// A hostile token differs from a good one in what its name says and in nothing else, so that it is
// refused for that alone. The issuer counts what is fetched from it.
//
// # Concurrency
//
// Safe for concurrent use.
//
// # What it does not do
//
// It knows no authenticator: what accepts and refuses is under test.
//
// # Where to look next
//
// edge/auth for the authenticators, edge/authz_test.go for the same tokens over HTTP.
package authtest
