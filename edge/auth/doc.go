// Package auth says who a caller is and what it may do, from its credential alone.
//
// # What it is
//
// A [Caller] is the result. Authenticators read a request's credential: JSON Web Tokens (JWKS, OIDC
// discovery, HMAC for development), API keys that are stored hashed, and stream tickets: short-lived
// tokens for one use, for clients that can set no header.
//
// # Contract
//
// The tenant and the scopes come from the credential and from nothing else. A credential that is not
// valid in every respect is [ErrUnauthorized], whatever is wrong with it; the reason is for the log
// and never holds the credential.
//
// # Concurrency
//
// Everything here is safe for concurrent use.
//
// # What it does not do
//
// It makes no accounts, no sessions and no tokens but tickets. It does not decide which route needs
// which scope: package edge does.
//
// # Where to look next
//
// edge/config.go, where an authenticator is handed in; cmd/agentstream, where one is put together.
package auth
